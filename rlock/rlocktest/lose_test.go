package rlocktest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

// TestLoseTellsAtOnce: when Lose returns, all of the hold knows.
func TestLoseTellsAtOnce(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{
		"watched":     nil,
		"fixed lease": {rlock.WithLease(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			kit := rlocktest.New(t, rlock.Options{})
			h := lock(t, kit, job, opts...)
			ctx := h.Context(t.Context())
			inner, err := kit.Client().NewRLock(job).TryLock(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			lost := h.Lost()

			kit.Lose(job)
			select {
			case <-lost:
			default:
				t.Error("Lost is not closed")
			}
			is(t, h.Err(), rlock.ErrLost)
			is(t, inner.Err(), rlock.ErrLost)
			is(t, context.Cause(ctx), rlock.ErrLost)
			kit.AssertFree(job)
			is(t, inner.Unlock(t.Context()), rlock.ErrLost)
			is(t, h.Unlock(t.Context()), rlock.ErrLost)
			counts(t, kit, job, 1, 0)
		})
	}
}

// TestLoseToAnother: the holder that lost it does not touch what comes after.
func TestLoseToAnother(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		h := lock(t, kit, job)
		kit.Lose(job)
		kit.Occupy(job)
		is(t, h.Unlock(t.Context()), rlock.ErrLost)
		pass(time.Minute)
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
		is(t, err, rlock.ErrNotAcquired)
	})
}

// TestLoseWakes: a waiter of the same client gets the lock that was lost.
func TestLoseWakes(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		lock(t, kit, job)
		done := waiting(t, kit)
		pass(time.Second)
		lost := time.Now()
		kit.Lose(job)
		got := <-done
		if got.err != nil || !got.at.Equal(lost) {
			t.Fatalf("%v, %v after the loss; want a hold at once", got.err, got.at.Sub(lost))
		}
		unlock(t, got.hold)
		counts(t, kit, job, 2, 1)
	})
}

func TestLoseEndsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := newFakeKit(t)
		kit.ends(func() { kit.Lose(job) }, job, "free")
		other := kit.Occupy(job)
		kit.ends(func() { kit.Lose(job) }, job, "held by another owner")
		other.Release()

		h := lock(t, kit.Kit, job)
		kit.Fail(errDown)
		kit.ends(func() { kit.Lose(job) }, job, errDown.Error(), "before Fail")
		kit.Fail(nil)
		if err := h.Err(); err != nil {
			t.Errorf("a Lose that ends the test has taken the lock: %v", err)
		}
		kit.AssertHeld(job)
		unlock(t, h)
		counts(t, kit.Kit, job, 1, 1)

		lock(t, kit.Kit, job)
		if err := kit.Client().Close(); err != nil {
			t.Fatal(err)
		}
		kit.ends(func() { kit.Lose(job) }, job, "client closed")
	})
}

// TestLoseMeetsUnlock: a release that comes to Redis before Lose ends the test,
// because there is nothing to lose.
func TestLoseMeetsUnlock(t *testing.T) {
	k := newFakeKit(t)
	h := lock(t, k.Kit, job)
	k.Lose(job) // so that the server knows the scripts
	is(t, h.Unlock(t.Context()), rlock.ErrLost)

	h = lock(t, k.Kit, job)
	var scripts atomic.Int64
	k.Before("EVALSHA", func() {
		if scripts.Add(1) == 3 { // after two looks, of Lose and of ForceUnlock
			unlock(t, h)
		}
	})
	k.ends(func() { k.Lose(job) }, job, "at the same moment")
}
