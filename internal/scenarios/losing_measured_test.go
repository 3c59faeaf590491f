//go:build scenarios

package scenarios_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// The tests of this file measure this process, so none of them is parallel.

// Re-entered holds leave no record of renewal behind, and no memory.
func TestB137ReentryLeavesNoRenewalBehind(t *testing.T) {
	const lease, depth, workers = time.Second, 5, 8
	names := rounds(t, 1000, 200)
	r := newRigAlone(t, redistest.Config{})
	c := r.client(rlock.Options{Lease: lease}, func(o *redis.Options) { o.PoolSize = workers })
	all := func() {
		r.eachOf(workers, names, func(i int) error {
			return reenter(t.Context(), c.NewRLock(r.prefix+strconv.Itoa(i)), depth)
		})
	}
	all() // connections, script caches and the map's buckets
	before, goroutines := heap(), runtime.NumGoroutine()
	const repeats = 3
	for range repeats {
		all()
	}
	m := r.Monitor(t)
	pass(lease)
	if calls := m.Stop(t); len(calls) != 0 {
		t.Errorf("after the last release the server got %d commands, such as %v", len(calls), calls[0])
	}
	redistest.Eventually(t, stuck, func() bool { return runtime.NumGoroutine() <= goroutines }, "goroutines end")
	// A record of each hold would be more than this.
	if grown := heap() - before; grown > int64(repeats*names*depth*64) {
		t.Errorf("the heap grew by %d bytes over %d holds", grown, repeats*names*depth)
	}
}

// reenter locks a name within itself, depth times, and unlocks as often.
func reenter(ctx context.Context, lock *rlock.RLock, depth int) error {
	if depth == 0 {
		return nil
	}
	return lock.TryDo(ctx, stuck, func(ctx context.Context) error { return reenter(ctx, lock, depth-1) })
}

// heap returns what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools kept over the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 8 EiB
}

// Close ends renewals and waiters, at once; what was held ends with its lease.
func TestB139CloseEndsRenewalsAndWaiters(t *testing.T) {
	const locks, fast = 3, time.Second
	r := newRigAlone(t, redistest.Config{})
	other := r.client(rlock.Options{Lease: long})
	standing := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr()})
	c, err := rlock.New(rdb, rlock.Options{Lease: watchdogLease})
	if err != nil {
		t.Fatal(err)
	}
	var holds, others []*rlock.Hold
	var waiters []<-chan outcome
	for i := range locks {
		own, foreign := r.prefix+"own:"+strconv.Itoa(i), r.prefix+"foreign:"+strconv.Itoa(i)
		holds = append(holds, r.mustLock(c.NewRLock(own)))
		others = append(others, r.mustLock(other.NewRLock(foreign)))
		waiters = append(waiters, r.beginBounded(c.NewRLock(own)), r.beginBounded(c.NewRLock(foreign)))
		r.awaitSubscribers(foreign, 1)
	}
	awaitRenewed(t, holds...)
	m := r.Monitor(t)
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(began); took > fast {
		t.Errorf("Close took %v", took)
	}
	for _, w := range waiters {
		wantIs(t, await(t, w, fast, "a waiter returns").err, rlock.ErrClosed)
	}
	for _, h := range holds {
		wantIs(t, h.Err(), rlock.ErrLost, rlock.ErrClosed)
		r.leave(h)
		r.awaitGone(h.Name(), watchdogLease+tellSlack)
	}
	calls := m.Stop(t)
	for _, h := range holds {
		if n := len(renewalsOf(calls, h.Name())); n != 0 {
			t.Errorf("%s was renewed %d times after Close", h.Name(), n)
		}
	}
	if err := rdb.Close(); err != nil {
		t.Error(err)
	}
	for _, h := range others {
		r.mustUnlock(h)
	}
	goleak.VerifyNone(t, standing)
}

// Cycles leave no goroutine behind.
func TestB140CyclesLeaveNoGoroutineBehind(t *testing.T) {
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: watchdogLease})
	cycle := func() {
		h, err := lock.TryLock(t.Context(), stuck)
		if err != nil {
			t.Fatal(err)
		}
		r.checkUnlock(h)
	}
	cycle()
	base := runtime.NumGoroutine()
	for range rounds(t, 10_000, 2_000) {
		cycle()
	}
	redistest.Eventually(t, stuck, func() bool { return runtime.NumGoroutine() <= base },
		"no more than %d goroutines", base)
}
