package rlocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

func TestOccupied(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		kit.Occupy(job)
		l := kit.Client().NewRLock(job)
		_, err := l.TryLock(t.Context(), 0)
		is(t, err, rlock.ErrNotAcquired)
		if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.RetryAfter != lease {
			t.Errorf("%v, want RetryAfter %v", err, lease)
		}
		start := time.Now()
		_, err = l.TryLock(t.Context(), time.Minute)
		is(t, err, rlock.ErrNotAcquired)
		if spent := time.Since(start); spent != time.Minute {
			t.Errorf("the wait of a minute took %v", spent)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = l.Lock(ctx) // an occupation is renewed
		is(t, err, context.DeadlineExceeded)
		unlock(t, lock(t, kit, "another name"))
		counts(t, kit, job, 0, 0)
	})
}

// TestReleaseWakes: those who wait are woken by a message, at once.
func TestReleaseWakes(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		other := kit.Occupy(job)
		done := waiting(t, kit)
		pass(7 * time.Second)
		released := time.Now()
		other.Release()
		got := <-done
		if got.err != nil || !got.at.Equal(released) {
			t.Fatalf("%v, %v after the release; want a hold at once", got.err, got.at.Sub(released))
		}
		other.Release() // once more: nothing happens
		kit.AssertHeld(job)
		unlock(t, got.hold)
		counts(t, kit, job, 1, 1)
	})
}

// TestOccupyWithLease: the occupation ends by itself, to the millisecond.
func TestOccupyWithLease(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		other := kit.Occupy(job, rlock.WithLease(10*time.Second))
		pass(10*time.Second - time.Millisecond)
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
		is(t, err, rlock.ErrNotAcquired)
		pass(time.Millisecond)
		kit.AssertFree(job)
		h := lock(t, kit, job)
		other.Release() // too late: the lock is not touched
		kit.AssertHeld(job)
		unlock(t, h)
	})
}

// TestOccupantForced: code may take the lock from an occupant by ForceUnlock.
func TestOccupantForced(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		other := kit.Occupy(job)
		if freed, err := kit.Client().NewRLock(job).ForceUnlock(t.Context()); !freed || err != nil {
			t.Fatalf("ForceUnlock: %v, %v", freed, err)
		}
		kit.AssertFree(job)
		counts(t, kit, job, 0, 0)
		h := lock(t, kit, job)
		other.Release()
		kit.AssertHeld(job)
		unlock(t, h)
	})
}

// TestOccupantsDoNotFail: Fail is for Client.
func TestOccupantsDoNotFail(t *testing.T) {
	for name, failure := range map[string]error{"away": errDown, "reply": rlocktest.Reply("LOADING")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				t, kit := r.T, r.kit
				kit.Fail(failure)
				other := kit.Occupy(job)
				pass(10 * time.Minute)
				kit.Fail(nil)
				_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
				is(t, err, rlock.ErrNotAcquired)
				kit.Fail(failure)
				other.Release()
				kit.AssertFree(job)
			})
		})
	}
}

func TestOccupyEndsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := newFakeKit(t)
		kit.Occupy("theirs")
		kit.ends(func() { kit.Occupy("theirs") }, "theirs", "held by another owner")
		h := lock(t, kit.Kit, "ours")
		kit.ends(func() { kit.Occupy("ours") }, "ours", "held by Client")
		unlock(t, h)
		kit.passes(func() { kit.Occupy("ours") })
		kit.ends(func() { kit.Occupy("free", rlock.WithLease(0)) }, "free", "WithLease(0s)")
		kit.ends(func() { kit.Occupy("") }, "name is empty")
	})
}

// TestReleaseWithoutAnswer: a Release that cannot tell is an error of the test.
func TestReleaseWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := newFakeKit(t)
		other := kit.Occupy(job)
		answer := make(chan struct{})
		kit.Before("EVALSHA", func() { <-answer })
		kit.errs(other.Release, job, "outcome unknown")
		close(answer)
	})
}
