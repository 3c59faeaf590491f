package rlocktest_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

var _ rlocktest.TB = testing.TB(nil) // every testing.TB is a TB

func TestNewRefusesBadOptions(t *testing.T) {
	fake := &fakeTB{}
	defer fake.end()
	errs, fatals := fake.during(func() { rlocktest.New(fake, rlock.Options{Lease: -time.Second}) })
	if len(errs) > 0 || len(fatals) != 1 || !hasAll(fatals[0], []string{"Options.Lease"}) {
		t.Errorf("errors %q, fatal %q; want one fatal failure that names Options.Lease", errs, fatals)
	}
}

// TestOutsideBubble does in real time what takes none.
func TestOutsideBubble(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	other := kit.Occupy(job)
	_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
	is(t, err, rlock.ErrNotAcquired)
	other.Release()

	h := lock(t, kit, job)
	kit.Lose(job)
	<-h.Lost()
	is(t, h.Unlock(t.Context()), rlock.ErrLost)

	kit.Fail(errDown)
	_, err = kit.Client().NewRLock(job).TryLock(t.Context(), 0)
	is(t, err, errDown)
	kit.Fail(nil)
	unlock(t, lock(t, kit, job))
	counts(t, kit, job, 2, 1)
}

// TestTakesNoTime: without waiting the bubble's clock stands still.
func TestTakesNoTime(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		start := time.Now()
		kit.Occupy(job).Release()
		unlock(t, lock(t, kit, job))
		h := lock(t, kit, job)
		kit.Lose(job)
		is(t, h.Unlock(t.Context()), rlock.ErrLost)
		kit.AssertFree(job)
		if spent := time.Since(start); spent != 0 {
			t.Errorf("it took %v", spent)
		}
	})
}

// TestRealClient: options reach the client, which keeps what it holds.
func TestRealClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := rlocktest.New(t, rlock.Options{Lease: 6 * time.Second})
		h := lock(t, kit, job)
		if left := time.Until(h.ValidUntil()); left != 6*time.Second {
			t.Errorf("the hold is valid for %v, want 6s", left)
		}
		pass(5 * time.Minute)
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		kit.AssertHeld(job)
		unlock(t, h)
		kit.AssertReleased(job)
	})
}

func TestKeyPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := rlocktest.New(t, rlock.Options{KeyPrefix: "app:"})
		other := kit.Occupy(job)
		if keys := kit.Keys(); !slices.Equal(keys, []string{"app:job"}) {
			t.Errorf("keys %q, want app:job", keys)
		}
		done := waiting(t, kit)
		other.Release()
		unlock(t, (<-done).hold)
		kit.AssertFree(job)
		kit.AssertReleased(job)
		counts(t, kit, job, 1, 1)
		counts(t, kit, "app:job", 0, 0)

		h := lock(t, kit, job)
		kit.AssertHeld(job)
		if held := kit.Held(); !slices.Equal(held, []string{job}) {
			t.Errorf("Client holds %q, want %q", held, job)
		}
		kit.Lose(job)
		is(t, h.Err(), rlock.ErrLost)
		counts(t, kit, job, 2, 1)
	})
}

// TestEndOfTest: whatever is going on, the end of the test ends it. That no
// goroutine is left the bubble checks.
func TestEndOfTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeTB{}
		kit := rlocktest.New(fake, rlock.Options{})
		kit.Occupy(job)
		done := waiting(t, kit)
		kit.Fail(errDown)
		pass(10 * time.Minute) // dozens of attempts to connect
		kit.Fail(nil)
		h := lock(t, kit, "other")
		lock(t, kit, "fixed", rlock.WithLease(time.Hour))
		kit.Fail(errDown)
		pass(time.Second)
		fake.end()
		is(t, (<-done).err, rlock.ErrClosed)
		if err := h.Err(); err == nil {
			t.Error("a hold outlives the test")
		}
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
		is(t, err, rlock.ErrClosed)
		if _, err := kit.Dial(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a connection after the end: %v", err)
		}
	})
}

// TestEndHeals: releases that could not be sent so far are sent at the end, so
// that it does not wait in vain for as long as Options.UnlockTimeout.
func TestEndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := newFakeKit(t)
		h := lock(t, kit.Kit, job)
		kit.Fail(errDown)
		is(t, h.Unlock(t.Context()), errDown)
		start := time.Now()
		kit.fake.end()
		if spent := time.Since(start); spent > 2*time.Second {
			t.Errorf("the end took %v", spent)
		}
		counts(t, kit.Kit, job, 1, 1)
	})
}

// TestLogger: the log is that of Client, not that of others.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // read when nothing writes to it
		kit := rlocktest.New(t, rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		kit.Occupy(job, rlock.WithLease(time.Second))
		pass(time.Minute) // it is lost
		if log.Len() > 0 {
			t.Errorf("an occupation is logged: %s", &log)
		}
		lock(t, kit, job)
		kit.Lose(job)
		if !strings.Contains(log.String(), job) {
			t.Errorf("a loss is not logged: %q", &log)
		}
	})
}

// TestClosedByTheCode: code that closes its client does no harm.
func TestClosedByTheCode(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		unlock(t, lock(t, kit, job))
		if err := kit.Client().Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		kit.AssertReleased(job)
		kit.Occupy(job)
	})
}

// TestKitsAreApart: each test has a Redis of its own.
func TestKitsAreApart(t *testing.T) {
	one, two := rlocktest.New(t, rlock.Options{}), rlocktest.New(t, rlock.Options{})
	one.Occupy(job)
	unlock(t, lock(t, two, job))
	if first := one.Client(); first == two.Client() || first != one.Client() {
		t.Error("a Kit has one client of its own")
	}
}
