package rlocktest_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

// TestCountsUnderContention: goroutines that fight for a few locks, re-enter
// them and are elbowed by occupants, in real time. Not one turn is miscounted.
func TestCountsUnderContention(t *testing.T) {
	const names, goroutines, turns = 3, 8, 6
	kit := rlocktest.New(t, rlock.Options{})
	nothing := func(context.Context) error { return nil }
	var group sync.WaitGroup
	for n := range names {
		l := kit.Client().NewRLock(strconv.Itoa(n))
		for range goroutines {
			group.Go(func() {
				for range turns {
					err := l.Do(t.Context(), func(ctx context.Context) error { return l.Do(ctx, nothing) })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	for n := range names {
		counts(t, kit, strconv.Itoa(n), goroutines*turns, goroutines*turns)
		kit.AssertReleased(strconv.Itoa(n))
	}
	if held := kit.Held(); held != nil {
		t.Errorf("Client holds %q", held)
	}
}

// TestCountsOuterHoldsOnly: the lock is acquired with the first hold of an owner
// and released with the last one, in whatever order they are unlocked.
func TestCountsOuterHoldsOnly(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		outer := lock(t, kit, job)
		inner, err := kit.Client().NewRLock(job).Lock(outer.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		counts(t, kit, job, 1, 0)
		unlock(t, outer)
		kit.AssertHeld(job)
		counts(t, kit, job, 1, 0)
		unlock(t, inner)
		counts(t, kit, job, 1, 1)
	})
}

// TestCountsExpiry: a lease that ran out is no release, whoever comes next.
func TestCountsExpiry(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		for range 2 {
			h := lock(t, kit, job, rlock.WithLease(time.Second))
			pass(time.Second)
			is(t, h.Unlock(t.Context()), rlock.ErrLost)
			if held := kit.Held(); held != nil {
				t.Errorf("Client holds %q", held)
			}
		}
		counts(t, kit, job, 2, 0)
		kit.Occupy(job).Release()
		counts(t, kit, job, 2, 0)
		unlock(t, lock(t, kit, job))
		counts(t, kit, job, 3, 1)
	})
}

// TestCountsForceUnlock: Client's own ForceUnlock of its own lock is a release.
func TestCountsForceUnlock(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		h := lock(t, kit, job)
		if freed, err := kit.Client().NewRLock(job).ForceUnlock(t.Context()); !freed || err != nil {
			t.Fatalf("ForceUnlock: %v, %v", freed, err)
		}
		is(t, h.Unlock(t.Context()), rlock.ErrLost)
		counts(t, kit, job, 1, 1)
	})
}

// TestCountsAbandoned: a Lock whose context ends while Redis grants it returns
// an error; what was granted is counted, and given back in the background.
func TestCountsAbandoned(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := make(chan struct{})
		kit.Before("HSET", sync.OnceFunc(func() {
			cancel()
			<-left // the grant goes on when nobody waits for it any more
		}))
		_, err := kit.Client().NewRLock(job).Lock(ctx)
		close(left)
		is(t, err, context.Canceled)
		synctest.Wait()
		counts(t, kit, job, 1, 1)
		kit.AssertFree(job)
		kit.AssertReleased(job)
	})
}

// connectTwice sees that Client has two connections and that the server knows
// the scripts.
func connectTwice(t *testing.T, kit *rlocktest.Kit) {
	t.Helper()
	unlock(t, lock(t, kit, job))
	var both, group sync.WaitGroup
	both.Add(2)
	kit.Before("EVALSHA", func() {
		both.Done()
		both.Wait()
	})
	for range 2 {
		group.Go(func() { _, _ = kit.Client().NewRLock(job).Info(t.Context()) })
	}
	group.Wait()
	kit.Before("", nil)
}

// TestCountsReplaced: the next attempt comes to the server before what nobody
// took is given back, and replaces it: that counts as a release.
func TestCountsReplaced(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		connectTwice(t, kit) // a server that executes a script takes no new ones
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		next, replaced := make(chan struct{}), make(chan struct{})
		var scripts atomic.Int64
		kit.Before("HSET", sync.OnceFunc(func() {
			kit.Before("EVALSHA", func() {
				switch scripts.Add(1) {
				case 1: // the next attempt
					close(next)
				case 2: // what gives back the one before
					<-replaced
				}
			})
			cancel()
			<-next
		}))
		_, err := kit.Client().NewRLock(job).Lock(ctx)
		is(t, err, context.Canceled)
		h, err := kit.Client().NewRLock(job).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		close(replaced)
		synctest.Wait()
		counts(t, kit, job, 3, 2)
		kit.AssertHeld(job)
		unlock(t, h)
		kit.AssertReleased(job)
	})
}

func TestHeld(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		var holds []*rlock.Hold
		for _, name := range []string{"c", "a", "b"} {
			holds = append(holds, lock(t, kit, name))
		}
		kit.Occupy("occupied")
		unlock(t, lock(t, kit, "released"))
		lock(t, kit, "expired", rlock.WithLease(time.Second))
		pass(time.Second)
		if held := kit.Held(); !slices.Equal(held, []string{"a", "b", "c"}) {
			t.Errorf("Client holds %q, want a, b and c", held)
		}
		for _, h := range holds {
			unlock(t, h)
		}
		if held := kit.Held(); held != nil {
			t.Errorf("Client holds %q, want nothing", held)
		}
	})
}
