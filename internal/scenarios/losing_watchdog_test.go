//go:build scenarios

package scenarios_test

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// A hold that was lost to a dead network leaves nothing behind that would keep
// the next hold of the name, in the same client, from being renewed.
func TestB052AHoldAfterALostOneIsRenewed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	opts := rlock.Options{Lease: watchdogLease, UnlockTimeout: shortUnlock}
	a := r.lock(opts, through(p))
	b := r.lock(opts)
	h := r.mustLock(a)
	p.Blackhole()
	r.awaitGone(r.name, stuck)
	p.Heal()
	p.KillConnections()
	r.wantLostUnlock(h)

	h = r.mustLock(a)
	r.keep(h, b, watchdogLease, leases(t, watchdogLease, 4, 3))
	r.mustUnlock(h)
}

// The same after a long outage, with connections that nobody closes, three
// times in a row.
func TestB053RenewalWorksAfterAnOutage(t *testing.T) {
	t.Parallel()
	const lease = watchdogLease
	r := newRig(t)
	p := r.proxy()
	opts := rlock.Options{Lease: lease, UnlockTimeout: shortUnlock}
	a := r.lock(opts, through(p))
	b := r.lock(opts)
	h := r.mustLock(a)
	p.Blackhole()
	pass(3*lease + lease/6)
	wantIs(t, h.Err(), rlock.ErrLost)
	p.Heal()
	for range 3 {
		next := r.mustLock(a)
		r.keep(next, b, lease, leases(t, lease, 3, 2))
		r.mustUnlock(next)
	}
	r.wantLostUnlock(h)
}

// "Not yours" ends the renewal of one hold, and of no other; the next one has a
// renewal of its own, and only one.
func TestB055AHoldAfterADeletedOneHasOneRenewalStream(t *testing.T) {
	t.Parallel()
	r := newRigAlone(t, redistest.Config{})
	opts := rlock.Options{Lease: watchdogLease}
	a := r.lock(opts)
	b := r.lock(opts)
	first := r.mustLock(a)
	awaitRenewed(t, first)
	pass(watchdogLease / 6) // now it is between two renewals
	r.removing(first)
	r.del()
	other := r.mustLock(b)
	r.mustUnlock(other)
	h := r.mustLock(a)
	m := r.Monitor(t)
	began := time.Now()
	r.keep(h, b, watchdogLease, leases(t, watchdogLease, 5, 3))
	held := time.Since(began)
	renewals := renewalsOf(m.Stop(t), r.name)
	r.mustUnlock(h)
	r.wantLostUnlock(first)

	// A renewal goes out at most an eighth of its interval early.
	interval := watchdogLease / 3
	if most := int(held/(interval-interval/8)) + 1; len(renewals) > most {
		t.Errorf("%d renewals in %v, one stream has at most %d", len(renewals), held, most)
	}
	for _, c := range renewals {
		if owner := c.Args[4]; owner != h.Owner() {
			t.Errorf("a renewal of %s went out while %s was inside", owner, h.Owner())
		}
	}
}

// One renewal that fails, in whatever way, is tried again early enough.
func TestB056OneFailedRenewalLosesNothing(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	faults := map[string]func(*faultproxy.Match) *faultproxy.Rule{
		"an error that passes": func(m *faultproxy.Match) *faultproxy.Rule {
			return m.ReplyError("LOADING Redis is loading the dataset in memory")
		},
		"a server that became a replica": func(m *faultproxy.Match) *faultproxy.Rule {
			return m.ReplyError("READONLY You can't write against a read only replica.")
		},
		"an error nobody knows":     func(m *faultproxy.Match) *faultproxy.Rule { return m.ReplyError("ERR internal error") },
		"a script that is unknown":  func(m *faultproxy.Match) *faultproxy.Rule { return m.ReplyError("NOSCRIPT No matching script.") },
		"a request that is lost":    (*faultproxy.Match).DropRequest,
		"a reply that is lost":      (*faultproxy.Match).SwallowReply,
		"a reply that is late":      func(m *faultproxy.Match) *faultproxy.Rule { return m.DelayReply(lease / 2) },
		"a reset before execution":  (*faultproxy.Match).Reset,
		"a reset after execution":   (*faultproxy.Match).ResetAfterExecution,
		"a request that comes late": func(m *faultproxy.Match) *faultproxy.Rule { return m.DelayRequest(lease / 2) },
	}
	r := newRig(t)
	r.loadScripts()
	type attempt struct {
		fault string
		proxy *faultproxy.Proxy
		rule  *faultproxy.Rule
		h     *rlock.Hold
		v     *vigil
	}
	began := time.Now()
	attempts := make([]attempt, 0, len(faults))
	for name, fault := range faults {
		p := r.proxy()
		c := r.client(rlock.Options{Lease: lease, UnlockTimeout: shortUnlock}, through(p))
		rule := fault(p.On(renewing(), faultproxy.Nth(1)))
		h := r.mustLock(c.NewRLock(r.prefix + name))
		attempts = append(attempts, attempt{name, p, rule, h, r.watch(h.Name(), h.Owner(), nil)})
	}
	for _, a := range attempts {
		awaitRenewed(t, a.h)
	}
	// Past the end that the first lease had.
	pass(time.Until(began.Add(lease + lease/6)))
	for _, a := range attempts {
		// Half an interval passes before a lost command is tried again.
		a.v.wantTTL(lease / 3)
		if err := a.h.Err(); err != nil || isClosed(a.h.Lost()) {
			t.Errorf("%s: the hold was lost: %v", a.fault, err)
		}
		if n := a.rule.Hits(); n != 1 {
			t.Errorf("%s: it happened %d times, want once", a.fault, n)
		}
		r.mustUnlock(a.h)
		a.proxy.KillConnections() // what still hangs need not be waited for
	}
}

// The context that bounds the waiting does not bound the holding.
func TestB058TheEndOfTheAcquireContextEndsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	opts := rlock.Options{Lease: watchdogLease}
	a := r.client(opts)
	b := r.client(opts)
	vigils := map[*rlock.Hold]*vigil{}
	begin := func(name string, end func(context.Context, *rlock.RLock) (*rlock.Hold, error)) {
		h, err := end(t.Context(), a.NewRLock(r.prefix+name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.enter(h)
		vigils[h] = r.watch(h.Name(), h.Owner(), b.NewRLock(h.Name()))
	}
	begin("cancelled", func(ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return l.Lock(ctx)
	})
	begin("past its deadline", func(ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		h, err := l.Lock(ctx)
		<-ctx.Done()
		cancel()
		return h, err
	})
	begin("past the wait of TryLock", func(ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return l.TryLock(ctx, time.Second)
	})
	pass(leases(t, watchdogLease, 5, 3))
	for h, v := range vigils {
		v.wantRenewed(watchdogLease)
		if err := h.Err(); err != nil {
			t.Errorf("%s: the hold ended: %v", h.Name(), err)
		}
		r.mustUnlock(h)
	}
}
