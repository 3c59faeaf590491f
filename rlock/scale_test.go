package rlock_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// scaleFor is how long the scale tests look at a steady state: a few seconds,
// or LATCHKEY_SCALE_SECONDS for a measurement.
func scaleFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("LATCHKEY_SCALE_SECONDS")
	if text == "" {
		return 4 * time.Second
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds <= 0 {
		t.Fatalf("LATCHKEY_SCALE_SECONDS is %q: it takes a whole number of seconds above 0", text)
	}
	return time.Duration(seconds) * time.Second
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // a heap fits
}

// each runs f for 0..n-1 in a few goroutines and fails the test on any error.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	const workers = 32
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func newClient(t *testing.T, s *redistest.Server, opts rlock.Options) *rlock.Client {
	t.Helper()
	c, err := rlock.New(s.Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Not parallel: it counts the goroutines and the heap of the process.
func TestTenThousandHoldsAreKeptByOneTimer(t *testing.T) {
	const holds = 10_000
	const lease = 3 * time.Second
	s := redistest.New(t, redistest.Config{})
	c := newClient(t, s, rlock.Options{Lease: lease})
	held := make([]*rlock.Hold, holds)
	if _, err := c.NewRLock("warm").TryLock(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	bytes, goroutines := heap(), runtime.NumGoroutine()
	each(t, holds, func(i int) (err error) {
		held[i], err = c.NewRLock("held:" + strconv.Itoa(i)).Lock(t.Context())
		return err
	})
	perHold := (heap() - bytes) / holds

	window := scaleFor(t)
	least, most := holds, 0
	counts := s.Commands(t, func() {
		end := time.After(window)
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for done := false; !done; {
			select {
			case <-end:
				done = true
			case <-look.C:
				more := runtime.NumGoroutine() - goroutines
				least, most = min(least, more), max(most, more)
			}
		}
	})
	for i, h := range held {
		if err := h.Err(); err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	perLockAndLease := float64(counts["evalsha"]) / holds / (float64(window) / float64(lease))
	t.Logf("%d holds kept for %v: %d B a hold, %d to %d goroutines more, %.3f renewal commands a lock and lease",
		holds, window, perHold, least, most, perLockAndLease)
	if perLockAndLease > 0.05 {
		t.Errorf("%.3f renewal commands a lock and lease, want at most 0.05", perLockAndLease)
	}
	// None stands by. A batch of up to 100 that is under way has its own, and
	// waves of batches may overlap on a busy machine.
	if least > 2 || most > holds/20 {
		t.Errorf("%d to %d goroutines more than without holds", least, most)
	}
	if perHold > 1200 {
		t.Errorf("a hold costs %d bytes", perHold)
	}
	each(t, holds, func(i int) error { return held[i].Unlock(t.Context()) })
	s.CheckNoKeys(t, "held:")
}

func TestAThousandWaitersCostNoGoroutineAndNextToNoCommands(t *testing.T) {
	const waiters = 1000
	s := redistest.New(t, redistest.Config{})
	holder, c := newClient(t, s, rlock.Options{}), newClient(t, s, rlock.Options{})
	h, err := holder.NewRLock("busy").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range waiters {
		group.Go(func() {
			if _, err := c.NewRLock("busy").Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock = %v, want context.Canceled", err)
			}
		})
	}
	redistest.Eventually(t, 10*time.Second, func() bool {
		return len(s.Connections(t)) >= 3 && c.Waiting("busy") == waiters
	}, "%d waiters queue", waiters)

	window := scaleFor(t)
	total := int64(0)
	for name, n := range s.Commands(t, func() { <-time.After(window) }) {
		if name == "evalsha" || name == "eval" || name == "subscribe" || name == "ping" {
			total += n
		}
	}
	more := runtime.NumGoroutine() - before - waiters
	t.Logf("%d waiters for %v: %d commands, %d goroutines beyond the callers'", waiters, window, total, more)
	// The connection of the subscription has its few, whatever the number of waiters.
	if more > 8 {
		t.Errorf("%d goroutines beyond the callers'", more)
	}
	if most := int64(window/time.Second) + 1; total > most {
		t.Errorf("%d commands in %v, want at most one a second", total, window)
	}
	cancel()
	group.Wait()
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.CheckNoChannels(t, "redisson_lock__channel*")
}

func TestFiveThousandNamesAreWaitedOnThroughOneConnection(t *testing.T) {
	const names = 5000
	s := redistest.New(t, redistest.Config{})
	holder, c := newClient(t, s, rlock.Options{}), newClient(t, s, rlock.Options{})
	held := make([]*rlock.Hold, names)
	each(t, names, func(i int) (err error) {
		held[i], err = holder.NewRLock("many:" + strconv.Itoa(i)).Lock(t.Context())
		return err
	})
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	for i := range names {
		group.Go(func() {
			err := c.NewRLock("many:"+strconv.Itoa(i)).Do(t.Context(), func(context.Context) error { return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, time.Minute, func() bool {
		for _, connection := range s.Connections(t) {
			if connection.Subscriptions == names {
				return true
			}
		}
		return false
	}, "one connection subscribes to all %d channels", names)
	subscribers := 0
	for _, connection := range s.Connections(t) {
		if connection.Subscriptions > 0 {
			subscribers++
		}
	}
	// Each name's attempt after the confirmation has its goroutine until it is answered.
	var more int
	redistest.Eventually(t, 10*time.Second, func() bool {
		more = runtime.NumGoroutine() - before - names
		return more <= 8
	}, "no more than a few goroutines beyond the callers'")
	t.Logf("%d names waited on: %d subscription connections, %d goroutines beyond the callers'", names, subscribers, more)
	if subscribers != 1 {
		t.Errorf("%d subscription connections, want 1", subscribers)
	}
	each(t, names, func(i int) error { return held[i].Unlock(t.Context()) })
	released := time.Now()
	group.Wait()
	t.Logf("all %d woken %v after the last release", names, time.Since(released).Round(time.Millisecond))
	s.CheckNoKeys(t, "many:")
	s.CheckNoChannels(t, "redisson_lock__channel*")
}
