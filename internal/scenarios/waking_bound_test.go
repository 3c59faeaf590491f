//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestB119ATryWithoutAWaitAsksOnce(t *testing.T) {
	const waiters, tries = 100, 5
	r := newRigAlone(t, redistest.Config{})
	h := r.mustLock(r.lock(rlock.Options{}))
	lock := r.lock(rlock.Options{})
	var group sync.WaitGroup
	var started sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started.Add(waiters)
	for range waiters {
		group.Go(func() {
			started.Done()
			if _, err := lock.Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock = %v, want context.Canceled", err)
			}
		})
	}
	started.Wait()
	r.awaitSubscribers(r.name, 1)
	pass(50 * time.Millisecond) // what the head does on its own account is over

	var took []time.Duration
	for range tries {
		counts := r.Commands(t, func() {
			each, err := timed(t, func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), 0) })
			wantIs(t, err, rlock.ErrNotAcquired)
			took = append(took, each)
		})
		if counts["evalsha"] != 1 || counts["subscribe"] != 0 {
			t.Errorf("a try sent %v, want one script and no subscription", counts)
		}
	}
	// The machine may stop this process for longer than the bound; not in each.
	t.Logf("TryLock took %v", took)
	if best := slices.Min(took); best > 50*time.Millisecond {
		t.Errorf("the fastest of %d tries took %v, want less than 50ms", tries, best)
	}
	cancel()
	group.Wait()
	r.mustUnlock(h)
}

func TestB121ABeatenWaiterGoesOnWaiting(t *testing.T) {
	t.Parallel()
	const waiters, work = 20, 100 * time.Millisecond
	r := newRig(t)
	clients := r.clients(10, rlock.Options{})
	h := r.mustLock(clients[0].NewRLock(r.name))
	var group sync.WaitGroup
	for i := range waiters {
		group.Go(func() {
			h, err := clients[i%len(clients)].NewRLock(r.name).TryLock(t.Context(), 10*time.Second)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			r.enter(h)
			pass(work)
			r.mustUnlock(h)
		})
	}
	r.mustUnlock(h)
	group.Wait()
}

func TestB122AWaitMayBeLongerThanTheLease(t *testing.T) {
	t.Parallel()
	const lease, hold, wait = 200 * time.Millisecond, 2 * time.Second, 5 * time.Second
	r := newRig(t)
	// The holder's lease ends several times while the other waits, but is long
	// enough for a busy machine to renew it in time.
	holder, waiter := r.lock(rlock.Options{Lease: hold / 4}), r.lock(rlock.Options{Lease: lease})
	h := r.mustLock(holder)
	began := time.Now()
	waiting := r.begin(func() (*rlock.Hold, error) { return waiter.TryLock(t.Context(), wait, rlock.WithLease(lease)) })
	pass(hold)
	released := time.Now()
	r.mustUnlock(h)
	got := awaitHold(t, waiting, wait)
	t.Logf("the waiter had the lock after %v, %v after its release", got.at.Sub(began), got.at.Sub(released))
	if took := got.at.Sub(released); took > slack {
		t.Errorf("the waiter had the lock %v after its release", took)
	}
	r.leave(got.hold)
	// This process may be stopped for longer than so short a lease.
	if err := got.hold.Unlock(t.Context()); err != nil && !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
}

func TestB125WhateverIsHandedOutReturnsAtOnce(t *testing.T) {
	t.Parallel()
	const callers = 8
	r := newRig(t)
	c := r.client(rlock.Options{})
	lock := c.NewRLock(r.name)
	h := r.mustLock(lock)
	other := r.lock(rlock.Options{})
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		_, err := timed(t, func() (*rlock.Hold, error) { return other.TryLock(t.Context(), wait) })
		wantIs(t, err, rlock.ErrNotAcquired)
	}

	inside, cancel := context.WithCancel(h.Context(t.Context()))
	defer cancel()
	again, err := lock.Lock(inside)
	if err != nil {
		t.Fatal(err)
	}
	r.wantHeld(h, "2")
	r.mustUnlock(again)
	wantIs(t, again.Unlock(inside), rlock.ErrNotHeld)
	r.wantHeld(h, "1")

	r.leave(h)
	results := make(chan error, callers)
	for range callers {
		go func() {
			cancel()
			results <- h.Unlock(inside)
		}()
	}
	succeeded := 0
	for range callers {
		if err := await(t, results, time.Second, "Unlock returns"); err == nil {
			succeeded++
		} else {
			wantIs(t, err, rlock.ErrNotHeld)
			wantNot(t, err, rlock.ErrLost)
		}
	}
	if succeeded != 1 {
		t.Errorf("%d calls of Unlock succeeded, want one", succeeded)
	}
	next := r.mustLock(other)
	wantIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	r.wantHeld(next, "1")
	r.mustUnlock(next)
}

// A guard against delays of the library's own, so in round trips and beside
// them: before each Lock the least that a lock can be is sent the same way. The
// machine's own delays may fall on one of them more than on the other, but not
// in three measurements.
func TestB127AnUncontendedLockCostsARoundTrip(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	rdb := r.Client(t)
	c, err := rlock.New(rdb, rlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(); _ = c.Close() })
	lock := c.NewRLock(r.name)
	r.mustUnlock(r.mustLock(lock))
	var trip, p99 time.Duration
	for range 3 {
		trips, locks := compareRoundTrips(t, rdb, lock, rounds(t, 10_000, 1500))
		trip, p99 = quantile(trips, 0.99), quantile(locks, 0.99)
		t.Logf("Lock takes %v, p99 %v; a round trip %v, p99 %v", quantile(locks, 0.5), p99, quantile(trips, 0.5), trip)
		if p99 <= 3*trip {
			break
		}
	}
	if p99 > 3*trip {
		t.Errorf("p99 of Lock is %v, want at most three round trips, of %v", p99, trip)
	}

	const contenders = 100
	visits := r.contend(contenders, contest{
		turns: rounds(t, 50, 5),
		lock:  func(int) *rlock.RLock { return lock },
	})
	var waits []time.Duration
	for _, v := range visits {
		waits = append(waits, v.enter.Sub(v.asked))
	}
	t.Logf("%d goroutines: p50 %v, worst %v", contenders, quantile(waits, 0.5), quantile(waits, 1))
	if worst := quantile(waits, 1); worst > 4*time.Second {
		t.Errorf("one of %d goroutines waited %v for its turn", contenders, worst)
	}
}

// compareRoundTrips locks n times, and sends before each Lock a script that
// does the least that a lock has to do. It returns what either took.
func compareRoundTrips(t *testing.T, rdb *redis.Client, lock *rlock.RLock, n int) (trips, locks []time.Duration) {
	t.Helper()
	least := redis.NewScript(`return redis.call('set', KEYS[1], 'owner', 'px', 30000, 'nx')`)
	bare := lock.Name() + ":bare"
	defer rdb.Del(t.Context(), bare)
	for range n {
		began := time.Now()
		if err := least.Run(t.Context(), rdb, []string{bare}).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		asked := time.Now()
		h, err := lock.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held := time.Now()
		if err := h.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		trips = append(trips, asked.Sub(began))
		locks = append(locks, held.Sub(asked))
	}
	return trips, locks
}

func TestB130AWaiterOutlastsARenewedLease(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	leases := rounds(t, 10, 5)
	r := newRig(t)
	holder, waiter := r.lock(rlock.Options{Lease: lease}), r.lock(rlock.Options{Lease: lease})
	h := r.mustLock(holder)
	waiting := r.begin(func() (*rlock.Hold, error) { return waiter.Lock(context.Background()) })
	select {
	case got := <-waiting:
		t.Fatalf("the waiter got %v, %v while the lock was held", got.hold, got.err)
	case <-time.After(time.Duration(leases) * lease):
	}
	if err := h.Err(); err != nil {
		t.Fatalf("the holder's hold ended: %v", err)
	}
	released := time.Now()
	r.mustUnlock(h)
	got := awaitHold(t, waiting, stuck)
	if took := got.at.Sub(released); took > slack {
		t.Errorf("the waiter had the lock %v after the release", took)
	}
	r.mustUnlock(got.hold)
}
