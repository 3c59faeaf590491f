//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// A lease belongs to a hold, not to the object: the next hold has its own.
func TestB158ALeaseDoesNotStickToTheObject(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: watchdogLease})
	for range 3 {
		r.mustUnlock(r.mustLock(lock, rlock.WithLease(time.Hour)))
		h := r.mustLock(lock)
		if ttl := r.ttl(); ttl > watchdogLease {
			t.Errorf("after a hold with an hour's lease, the next one has a TTL of %v", ttl)
		}
		r.mustUnlock(h)

		h = r.mustLock(lock, rlock.WithLease(time.Hour))
		if ttl := r.ttl(); ttl < time.Hour-time.Minute {
			t.Errorf("after a renewed hold, the one with an hour's lease has a TTL of %v", ttl)
		}
		r.mustUnlock(h)
	}
}

// Two that want a lock with different terms through one object: the winner has
// its own.
func TestB160TheWinnerHasItsOwnLease(t *testing.T) {
	t.Parallel()
	const lease, objects = watchdogLease, 20
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	each := rounds(t, 1000, 80) / objects
	var mu sync.Mutex
	wins := map[bool]int{}
	r.eachOf(objects, objects, func(i int) error {
		lock := c.NewRLock(r.prefix + strconv.Itoa(i))
		for range each {
			fixed, err := r.race(lock, lease)
			if err != nil {
				return err
			}
			mu.Lock()
			wins[fixed]++
			mu.Unlock()
		}
		return nil
	})
	t.Logf("won by the fixed lease: %d, by the watchdog: %d", wins[true], wins[false])
	if wins[true] == 0 || wins[false] == 0 {
		t.Error("one of the two never won")
	}
}

// race lets a renewed hold and one with a fixed lease of an hour compete and
// checks what the winner has. It returns whether that was the fixed one.
func (r *rig) race(lock *rlock.RLock, lease time.Duration) (fixed bool, err error) {
	var options [2][]rlock.LockOption
	options[1] = []rlock.LockOption{rlock.WithLease(time.Hour)}
	var holds [2]*rlock.Hold
	var errs [2]error
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range options {
		group.Go(func() {
			<-start
			holds[i], errs[i] = lock.TryLock(r.t.Context(), 0, options[i]...)
		})
	}
	close(start)
	group.Wait()
	winner := 0
	if holds[0] == nil {
		winner = 1
	}
	h, loser := holds[winner], errs[1-winner]
	if h == nil || !errors.Is(loser, rlock.ErrNotAcquired) {
		return false, errors.Join(errors.New("not one winner and one loser"), errs[0], errs[1])
	}
	return winner == 1, errors.Join(r.checkTerms(h, lease, winner == 1), h.Unlock(r.t.Context()))
}

// checkTerms checks the TTL of a hold, and that it is renewed or not.
func (r *rig) checkTerms(h *rlock.Hold, lease time.Duration, fixed bool) error {
	ttl, err := r.rdb.PTTL(r.t.Context(), h.Name()).Result()
	if err != nil {
		return err
	}
	end := h.ValidUntil()
	if fixed {
		pass(lease) // a watchdog would have renewed it
		if ttl < time.Hour-time.Minute || !h.ValidUntil().Equal(end) {
			return fmt.Errorf("the fixed lease won and has a TTL of %v", ttl)
		}
		return h.Err()
	}
	if ttl > lease {
		return fmt.Errorf("the watchdog's lease won and has a TTL of %v", ttl)
	}
	return renewed(h)
}

// Re-entry with a shorter lease takes nothing from the outer hold.
func TestB161ReentryDoesNotShortenTheLease(t *testing.T) {
	t.Parallel()
	const outerLease, innerLease = 10 * time.Second, time.Second
	r := newRig(t)
	a := r.lock(rlock.Options{Lease: watchdogLease})
	b := r.lock(rlock.Options{Lease: watchdogLease})
	outer := r.mustLock(a, rlock.WithLease(outerLease))
	end := outer.ValidUntil()
	inner, err := a.Lock(outer.Context(t.Context()), rlock.WithLease(innerLease))
	if err != nil {
		t.Fatal(err)
	}
	if ttl := r.ttl(); ttl < outerLease/2 {
		t.Errorf("after the re-entry the TTL is %v", ttl)
	}
	v := r.watch(r.name, outer.Owner(), b)
	pass(2 * innerLease)
	v.finish()
	for _, h := range []*rlock.Hold{outer, inner} {
		if h.Err() != nil || !h.ValidUntil().Equal(end) {
			t.Errorf("depth %d: Err = %v, valid until %v after the outer lease", h.Depth(), h.Err(), h.ValidUntil().Sub(end))
		}
	}
	if err := inner.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if ttl := r.ttl(); ttl < outerLease/2 {
		t.Errorf("after the inner Unlock the TTL is %v", ttl)
	}
	if _, err := b.TryLock(t.Context(), 0); !errors.Is(err, rlock.ErrNotAcquired) {
		t.Errorf("after the inner Unlock another one gets %v", err)
	}
	r.mustUnlock(outer)
	r.mustUnlock(r.mustLock(b))
}

// The lease counts from the attempt that was granted, not from the first.
func TestB163TheLeaseBeginsWithTheGrant(t *testing.T) {
	t.Parallel()
	const lease, wait = time.Second, 1500 * time.Millisecond
	cases := map[string]func(*rig, *faultproxy.Proxy, *rlock.RLock) (end func()){
		"after waiting for a holder": func(r *rig, _ *faultproxy.Proxy, other *rlock.RLock) func() {
			h := r.mustLock(other)
			return func() { r.mustUnlock(h) }
		},
		"after failed attempts": func(_ *rig, p *faultproxy.Proxy, _ *rlock.RLock) func() {
			return p.On(acquiring()).ReplyError("LOADING Redis is loading the dataset in memory").Remove
		},
	}
	for name, hinder := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.proxy()
			lock := r.lock(rlock.Options{}, through(p))
			end := hinder(r, p, r.lock(rlock.Options{}))
			waiter := r.begin(func() (*rlock.Hold, error) {
				return lock.TryLock(t.Context(), stuck, rlock.WithLease(lease))
			})
			pass(wait)
			free := time.Now()
			end()
			got := awaitHold(t, waiter, stuck)
			until := got.hold.ValidUntil()
			// The attempt that was granted was sent after free and before the return.
			if until.Before(free.Add(lease)) || until.After(got.at.Add(lease)) {
				t.Errorf("of a lease of %v there were %v left after the end of the hindrance and %v at the return",
					lease, until.Sub(free), until.Sub(got.at))
			}
			if ttl := r.ttl(); ttl < lease/2 {
				t.Errorf("the TTL is %v", ttl)
			}
			if err := got.hold.Err(); err != nil {
				t.Errorf("Err = %v", err)
			}
			r.mustUnlock(got.hold)
		})
	}
}

var _ = addProgram("storm", storm)

// storm is a program that locks and unlocks names that begin with its first
// line, as fast as it can, until it is killed. It says "storming" once it does.
func storm(p *program) error {
	if !p.lines.Scan() {
		return p.lines.Err()
	}
	prefix := p.lines.Text()
	var once sync.Once
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for {
				lock := p.client.NewRLock(prefix + strconv.Itoa(rand.N(8)))
				h, err := lock.TryLock(context.Background(), stuck)
				if err != nil {
					continue
				}
				once.Do(func() { p.say("storming") })
				_ = h.Unlock(context.Background())
			}
		})
	}
	group.Wait()
	return nil
}

// Whenever a process dies, what it leaves has a TTL.
func TestB164AKilledProcessLeavesNoLockWithoutATTL(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	r := newRigAlone(t, redistest.Config{})
	r.client(rlock.Options{}) // looks for what is left at the end
	left := 0
	for range rounds(t, 1000, 10) {
		p := start(t, "storm", r.Addr(), lease)
		p.tell(r.prefix)
		if got := p.hear(); got[0] != "storming" {
			t.Fatalf("the process said %q", got)
		}
		pass(rand.N(20 * time.Millisecond))
		p.kill()
		keys, err := r.rdb.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			ttl, err := r.rdb.PTTL(t.Context(), key).Result()
			switch {
			case err != nil:
				t.Fatal(err)
			case ttl == -1, ttl > lease:
				t.Errorf("a killed process left %s with a TTL of %v", key, ttl)
			default:
				left++
			}
		}
	}
	t.Logf("locks left by the killed processes, all with a TTL: %d", left)
	if left == 0 {
		t.Error("no process was killed while it held a lock")
	}
}

// What a client believes to have left is never more than what Redis has,
// whatever the network delays, and in which direction.
func TestB167TheLocalValidityIsNeverTooLong(t *testing.T) {
	t.Parallel()
	const lease, clients = time.Second, 6
	r := newRig(t)
	r.loadScripts()
	holds := make([]*rlock.Hold, clients)
	for i := range holds {
		p := r.proxy()
		latency := time.Duration(i) * 10 * time.Millisecond // 0 to 50 ms
		if i%2 == 0 {
			p.On(faultproxy.Any()).DelayReply(latency)
		} else {
			p.On(faultproxy.Any()).DelayRequest(latency)
		}
		holds[i] = r.mustLock(r.client(rlock.Options{Lease: lease}, through(p)).NewRLock(r.prefix + strconv.Itoa(i)))
	}
	samples, closest := rounds(t, 1000, 1000), lease
	for n := range samples {
		h := holds[n%clients]
		until := h.ValidUntil() // what renewals add later only makes Redis keep it longer
		ttl, err := r.rdb.PTTL(t.Context(), h.Name()).Result()
		if err != nil || h.Err() != nil {
			t.Fatal(err, h.Err())
		}
		// Redis keeps the lock at most until then: PTTL is cut to milliseconds.
		spare := time.Now().Add(ttl + time.Millisecond).Sub(until)
		closest = min(closest, spare)
		if spare < 0 {
			t.Errorf("sample %d: Redis keeps the lock for %v, the client believes in %v more", n, ttl, -spare)
		}
		if n%clients == 0 {
			pass(2 * time.Millisecond)
		}
	}
	t.Logf("%d samples: the local end came at least %v before that in Redis", samples, closest)
	for _, h := range holds {
		r.mustUnlock(h)
	}
}
