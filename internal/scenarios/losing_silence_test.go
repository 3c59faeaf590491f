//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/rlock"
)

// shortUnlock keeps what a dead network makes wait, Unlock and Close, short.
const shortUnlock = time.Second

// readTimeout is a hook for a client whose reads hang for this long.
func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

// The holder is told by its own clock, whether its renewals go nowhere, or are
// executed and their replies never come, and however long a read may hang.
func TestB031SilenceTellsTheLossWhileARenewalHangs(t *testing.T) {
	hole := func(t *testing.T, p *faultproxy.Proxy) { t.Helper(); p.Blackhole() }
	held := func(t *testing.T, p *faultproxy.Proxy) {
		t.Helper()
		replies := p.On(renewing()).Hold()
		await(t, replies.Fired(), stuck, "a renewal hangs")
	}
	cases := map[string]struct {
		timeout time.Duration
		fault   func(*testing.T, *faultproxy.Proxy)
	}{
		"packets dropped, reads time out":       {timeout: 200 * time.Millisecond, fault: hole},
		"packets dropped, reads hang":           {timeout: 30 * time.Second, fault: hole},
		"renewal executed, its reply held back": {timeout: 30 * time.Second, fault: held},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.loadScripts()
			p := r.proxy()
			opts := rlock.Options{Lease: watchdogLease, UnlockTimeout: shortUnlock}
			a := r.lock(opts, through(p), readTimeout(c.timeout))
			b := r.lock(rlock.Options{Lease: long})
			h := r.mustLock(a)
			awaitRenewed(t, h)
			at := told(h)
			waiter := r.beginBounded(b)
			cut := time.Now()
			c.fault(t, p)
			// Nothing that was sent after the cut is confirmed.
			wantTold(t, at, cut, watchdogLease)
			if end := h.ValidUntil(); end.After(time.Now()) {
				t.Errorf("told of the loss %v before it", time.Until(end))
			}
			got := awaitHold(t, waiter, 2*watchdogLease+tellSlack)
			p.Heal()
			p.KillConnections()
			r.wantLostUnlock(h)
			r.mustUnlock(got.hold)
		})
	}
}

// storage is what a lock protects: it notes who wrote when. There is no fencing
// token, so it refuses nobody.
type storage struct {
	mu    sync.Mutex
	wrote map[string]time.Time // the last write of each owner; guarded by mu
}

func (s *storage) write(who string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote[who] = at
}

func (s *storage) lastOf(who string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrote[who]
}

// A holder that is cut off, and that looks at its context before each write,
// has written for the last time when the next one comes in.
func TestB037AHolderThatIsCutOffStopsWritingBeforeTheNextOneWrites(t *testing.T) {
	t.Parallel()
	const lease = 300 * time.Millisecond
	r := newRig(t)
	p := r.proxy()
	opts := rlock.Options{Lease: lease, UnlockTimeout: shortUnlock}
	a := r.lock(opts, through(p))
	b := r.lock(rlock.Options{Lease: long})
	for range rounds(t, 50, 4) {
		s := &storage{wrote: make(map[string]time.Time)}
		h := r.mustLock(a)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			ctx := h.Context(context.Background())
			for at := time.Now(); ctx.Err() == nil; at = time.Now() {
				// The stamp comes before the look: after a look, a pause of the
				// process is beyond what a lock can guard.
				s.write("a", at)
			}
		}()
		p.Blackhole()
		next := r.mustLock(b)
		s.write("b", time.Now())
		await(t, stopped, stuck, "the holder that is cut off stops writing")
		if late := s.lastOf("a").Sub(s.lastOf("b")); late >= 0 {
			t.Errorf("the old holder wrote %v after the new one", late)
		}
		r.wantLostUnlock(h)
		p.Heal()
		p.KillConnections()
		r.mustUnlock(next)
	}
}

// An answer that comes after the lease cannot make a hold out of a lost one.
func TestB044AnAnswerThatComesAfterTheLeaseRevivesNothing(t *testing.T) {
	t.Parallel()
	const lease, slow = 600 * time.Millisecond, 900 * time.Millisecond
	r := newRig(t)
	r.loadScripts()
	p := r.proxy()
	a := r.lock(rlock.Options{Lease: lease}, through(p))

	t.Run("a question", func(t *testing.T) {
		h := r.mustLock(a, rlock.WithLease(lease))
		delay := p.On(faultproxy.Any()).DelayReply(slow)
		info, err := a.Info(t.Context())
		if err != nil || info.Owner != h.Owner() {
			t.Errorf("Info = %+v, %v, want the owner of then", info, err)
		}
		wantIs(t, h.Err(), rlock.ErrLost)
		if _, ok := a.HoldFrom(h.Context(t.Context())); ok {
			t.Error("the context of a lost hold carries it")
		}
		delay.Remove()
		r.wantLostUnlock(h)
	})
	t.Run("an extension", func(t *testing.T) {
		h := r.mustLock(a, rlock.WithLease(lease))
		delay := p.On(renewing()).DelayReply(slow)
		// A renewal is executed in time, and its confirmation comes too late.
		ctx, cancel := context.WithTimeout(t.Context(), 2*slow)
		defer cancel()
		wantIs(t, h.Renew(ctx, lease), rlock.ErrLost)
		wantIs(t, h.Err(), rlock.ErrLost)
		delay.Remove()
		r.wantLostUnlock(h)
	})
	t.Run("a grant", func(t *testing.T) {
		delay := p.On(acquiring()).DelayReply(slow)
		h, err := a.TryLock(t.Context(), 0, rlock.WithLease(lease))
		if err == nil {
			t.Errorf("TryLock gave a hold that says %v", h.Err())
		}
		delay.Remove()
		r.awaitGone(r.name, lease+slow)
	})
}

// What was deleted behind a holder's back is found by whoever asks Redis.
func TestB044ALookAtRedisSeesADeletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.lock(rlock.Options{Lease: watchdogLease})
	h := r.mustLock(a, rlock.WithLease(long))
	r.removing(h)
	r.del()
	if info, err := a.Info(t.Context()); err != nil || info.Held {
		t.Errorf("Info = %+v, %v, want a free lock", info, err)
	}
	wantIs(t, h.Renew(t.Context(), long), rlock.ErrLost)
	wantIs(t, h.Err(), rlock.ErrLost)
	r.wantLostUnlock(h)
}

// killClient kills all connections of the clients that have this name.
func (r *rig) killClient(name string) {
	r.t.Helper()
	killed := 0
	for _, c := range r.Connections(r.t) {
		if c.Name != name {
			continue
		}
		if err := r.rdb.ClientKillByFilter(r.t.Context(), "ID", c.Fields["id"]).Err(); err != nil {
			r.t.Fatal(err)
		}
		killed++
	}
	if killed == 0 {
		r.t.Fatal("there was no connection to kill")
	}
}

// A connection is no session: its end takes nothing from the holder.
func TestB047KilledConnectionsAreNoLoss(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	r := newRig(t)
	named := func(o *redis.Options) { o.ClientName = "losing-b047" }
	a := r.lock(rlock.Options{Lease: lease}, named)
	h := r.mustLock(a)
	v := r.watch(r.name, h.Owner(), r.lock(rlock.Options{Lease: lease}))
	r.killClient("losing-b047")
	awaitRenewed(t, h)
	awaitRenewed(t, h)
	v.wantRenewed(lease)
	r.wantHeld(h, "1")

	at := told(h)
	r.removing(h)
	r.killClient("losing-b047")
	r.del()
	wantTold(t, at, time.Now(), lease/3)
	if err := h.Err(); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Err = %v", err)
	}
	r.wantLostUnlock(h)
}
