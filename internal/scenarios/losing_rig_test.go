//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/rlock"
)

const (
	// watchdogLease is the lease of most cases about the watchdog.
	watchdogLease = 900 * time.Millisecond
	// tellSlack is how much later than promised a busy machine may close a
	// channel. What asks the clock, Hold.Err, has none.
	tellSlack = 400 * time.Millisecond
	// lookEvery is the time between two looks at a lock that is watched.
	lookEvery = 20 * time.Millisecond
)

// leases returns how long a test holds: the number of leases that its case asks
// for under LATCHKEY_FULL=1, and else a smaller one, in which a hold that is not
// renewed ends as well.
func leases(t *testing.T, lease time.Duration, full, reduced int) time.Duration {
	t.Helper()
	return time.Duration(rounds(t, full, reduced)) * lease
}

// full reports whether the full number of rounds is asked for, where that also
// means other conditions.
func full(t *testing.T) bool {
	t.Helper()
	return rounds(t, 2, 1) == 2
}

// renewing matches the renewals of a client.
func renewing() faultproxy.Matcher { return faultproxy.Script(script.RenewScript.SHA()) }

// acquiring matches the attempts of a client.
func acquiring() faultproxy.Matcher { return faultproxy.Script(script.AcquireScript.SHA()) }

// loadScripts puts the library's scripts into the server's cache, so that each
// call is one command: a rule about the first call then does not act on one that
// is answered NOSCRIPT.
func (r *rig) loadScripts() {
	r.t.Helper()
	for _, s := range []*script.Script{script.AcquireScript, script.ReleaseScript, script.RenewScript, script.InfoScript} {
		if err := r.rdb.ScriptLoad(r.t.Context(), s.Source()).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// renewalsOf returns the renewals among calls that concern a key.
func renewalsOf(calls []redistest.Call, key string) []redistest.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c redistest.Call) bool {
		return c.FromScript() || len(c.Args) < 2 || !slices.Contains(c.Args, key) ||
			(c.Args[1] != script.RenewScript.SHA() && c.Args[1] != script.RenewScript.Source())
	})
}

// meter calls look all the time and measures how long this process and the
// server kept it waiting: what is due on time comes that much later.
type meter struct {
	look  func(context.Context) bool // false ends it
	stop  func()
	ended chan struct{}
	looks int
	stall time.Duration // the longest, beyond lookEvery
}

// measure starts a meter, which ends with finish, or else with the test.
func measure(t *testing.T, look func(context.Context) bool) *meter {
	t.Helper()
	stop := make(chan struct{})
	m := &meter{look: look, ended: make(chan struct{}), stop: sync.OnceFunc(func() { close(stop) })}
	t.Cleanup(m.finish)
	ctx := t.Context()
	go m.run(ctx, stop)
	return m
}

func (m *meter) run(ctx context.Context, stop <-chan struct{}) {
	defer close(m.ended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for last := time.Now(); ; m.looks++ {
		select {
		case <-tick.C:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
		if !m.look(ctx) {
			return
		}
		now := time.Now()
		m.stall = max(m.stall, now.Sub(last)-lookEvery)
		last = now
	}
}

// finish ends the meter; its fields may be read afterwards.
func (m *meter) finish() {
	m.stop()
	<-m.ended
}

// ping is a look of a meter that only measures.
func (r *rig) ping(ctx context.Context) bool { return r.rdb.Ping(ctx).Err() == nil }

// vigil watches a held lock, as Redis has it.
type vigil struct {
	*meter
	r           *rig
	name, owner string
	rival       *rlock.RLock // tries to get it all the while; nil for nobody
	lowest      time.Duration
}

// watch starts a vigil over a lock that this owner holds. It fails the test if
// Redis ever has another owner, none, or no TTL, and if the rival gets the lock.
func (r *rig) watch(name, owner string, rival *rlock.RLock) *vigil {
	r.t.Helper()
	v := &vigil{r: r, name: name, owner: owner, rival: rival, lowest: math.MaxInt64}
	v.meter = measure(r.t, v.look)
	return v
}

func (v *vigil) look(ctx context.Context) bool {
	var fields *redis.MapStringStringCmd
	var ttl *redis.DurationCmd
	_, err := v.r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		fields, ttl = p.HGetAll(ctx, v.name), p.PTTL(ctx, v.name)
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		v.r.t.Errorf("looking at %s: %v", v.name, err)
		return false
	case len(fields.Val()) != 1 || fields.Val()[v.owner] == "":
		v.r.t.Errorf("%s was lost: Redis has %v in place of %s", v.name, fields.Val(), v.owner)
		return false
	case ttl.Val() < 0:
		v.r.t.Errorf("%s has no TTL", v.name)
		return false
	}
	v.lowest = min(v.lowest, ttl.Val())
	return v.rival == nil || v.rivalFails(ctx)
}

func (v *vigil) rivalFails(ctx context.Context) bool {
	h, err := v.rival.TryLock(ctx, 0)
	if err == nil {
		v.r.t.Errorf("a rival got %s while %s was inside", v.name, v.owner)
		_ = h.Unlock(ctx)
		return false
	}
	if !errors.Is(err, rlock.ErrNotAcquired) && ctx.Err() == nil {
		v.r.t.Errorf("a rival of %s: %v", v.name, err)
	}
	return true
}

// wantRenewed ends the vigil and checks that the lock was renewed in time: its
// TTL never came down to half of the lease.
func (v *vigil) wantRenewed(lease time.Duration) {
	v.r.t.Helper()
	v.wantTTL(lease / 2)
}

// wantTTL ends the vigil and checks that the TTL never came down to low. A
// renewal is as late as the machine made the vigil's own looks.
func (v *vigil) wantTTL(low time.Duration) {
	v.r.t.Helper()
	v.finish()
	if v.looks == 0 {
		v.r.t.Errorf("nobody looked at %s", v.name)
	}
	if v.lowest < low-v.stall {
		v.r.t.Errorf("the TTL of %s came down to %v, want at least %v less the longest stall of the machine, %v",
			v.name, v.lowest, low, v.stall)
	}
}

// keep lets a held lock be renewed for a time and checks that it was.
func (r *rig) keep(h *rlock.Hold, rival *rlock.RLock, lease, during time.Duration) {
	r.t.Helper()
	v := r.watch(h.Name(), h.Owner(), rival)
	pass(during)
	v.wantRenewed(lease)
	if err := h.Err(); err != nil {
		r.t.Errorf("the hold of %s ended: %v", h.Name(), err)
	}
}

// beginBounded is beginLock with a bound, within which attempts that a busy
// machine does not answer in time are made again.
func (r *rig) beginBounded(lock *rlock.RLock) <-chan outcome {
	return r.begin(func() (*rlock.Hold, error) { return lock.TryLock(r.t.Context(), stuck) })
}

// awaitRenewed returns when each of the holds was renewed after the call began,
// or else before it and confirmed after.
func awaitRenewed(t *testing.T, holds ...*rlock.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := renewed(h); err != nil {
			t.Fatal(err)
		}
	}
}

// renewed waits for one hold as awaitRenewed does.
func renewed(h *rlock.Hold) error {
	end := h.ValidUntil()
	if !comesTrue(stuck, func() bool { return h.ValidUntil().After(end) || h.Err() != nil }) {
		return fmt.Errorf("%s was not renewed within %v", h.Name(), stuck)
	}
	return h.Err()
}

// comesTrue polls cond and reports whether it was true within a bound. Unlike
// redistest.Eventually it may be called from any goroutine.
func comesTrue(within time.Duration, cond func() bool) bool {
	limit, tick := time.NewTimer(within), time.NewTicker(2*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			return cond()
		}
	}
	return true
}

// told brings the time at which a hold that will be lost tells so.
func told(h *rlock.Hold) <-chan time.Time {
	at, lost := make(chan time.Time, 1), h.Lost()
	go func() {
		<-lost
		at <- time.Now()
	}()
	return at
}

// wantTold checks that a loss was told within a bound, counted from a moment.
func wantTold(t *testing.T, at <-chan time.Time, from time.Time, within time.Duration) {
	t.Helper()
	took := await(t, at, stuck, "the holder is told of its loss").Sub(from)
	t.Logf("told after %v", took.Round(time.Millisecond))
	if took > within+tellSlack {
		t.Errorf("the holder was told of its loss after %v, want %v at most", took, within)
	}
}

// wantLostUnlock unlocks a lost hold, which must say so.
func (r *rig) wantLostUnlock(h *rlock.Hold) {
	r.t.Helper()
	r.leave(h)
	wantIs(r.t, h.Unlock(r.t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
}

// awaitGone returns when Redis does not have the key any more.
func (r *rig) awaitGone(name string, within time.Duration) {
	r.t.Helper()
	if !r.goneWithin(name, within) {
		r.t.Fatalf("%s is still there after %v", name, within)
	}
}

func (r *rig) goneWithin(name string, within time.Duration) bool {
	return comesTrue(within, func() bool {
		n, err := r.rdb.Exists(r.t.Context(), name).Result()
		return err == nil && n == 0
	})
}
