// Package latchkey_test is the acceptance specification: what the page of each
// name promises, tried by a caller against a real Redis server. This file says
// what a lock is and who owns it; rlock_wire_test.go what Redis sees of it;
// rlock_faults_test.go what holds when things fail.
package latchkey_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// New and NewRLock.

func TestNewAndNewRLockDoNoIO(t *testing.T) {
	t.Parallel()
	rdb := deadClient(t)
	c, err := rlock.New(rdb, rlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if got := c.NewRLock("order:42").Name(); got != "order:42" {
		t.Errorf("Name is %q", got)
	}
	if s := rdb.PoolStats(); s.Hits+s.Misses != 0 {
		t.Errorf("a connection was asked for: %+v", s)
	}
}

func TestEveryClientHasAFreshID(t *testing.T) {
	r := newRig(t)
	a, b := r.client(rlock.Options{}), r.client(rlock.Options{})
	if a.ID() == "" || a.ID() == b.ID() {
		t.Errorf("the ids are %q and %q", a.ID(), b.ID())
	}
	h := mustLock(t.Context(), t, a.NewRLock(r.name))
	if n, ok := strings.CutPrefix(h.Owner(), a.ID()+":"); !ok || n == "" {
		t.Errorf("the owner is %q, want %q and a number", h.Owner(), a.ID()+":")
	}
	mustUnlock(t, h)
}

func TestNewRefusesOptionsByName(t *testing.T) {
	t.Parallel()
	rdb := deadClient(t)
	for _, test := range []struct {
		opts rlock.Options
		want string
	}{
		{rlock.Options{Lease: -time.Second}, "Options.Lease"},
		{rlock.Options{Lease: time.Microsecond}, "Options.Lease"},
		{rlock.Options{RenewEvery: -time.Second}, "Options.RenewEvery"},
		{rlock.Options{Lease: time.Second, RenewEvery: 501 * time.Millisecond}, "Options.RenewEvery"},
		{rlock.Options{UnlockTimeout: -time.Second}, "Options.UnlockTimeout"},
		{rlock.Options{KeyPrefix: strings.Repeat("x", 1<<20)}, "Options.KeyPrefix"},
	} {
		if _, err := rlock.New(rdb, test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want an error that names %s", err, test.want)
		}
	}
}

func TestNewRefusesWhatCannotCarryALock(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": nobody}})
	t.Cleanup(func() { _ = ring.Close() })
	var typedNil *redis.Client
	for name, rdb := range map[string]redis.UniversalClient{"nil": nil, "a nil *Client": typedNil, "a Ring": ring} {
		if _, err := rlock.New(rdb, rlock.Options{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Lock, TryLock, Do and TryDo.

func TestALockIsHeldFromLockToUnlock(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	h := mustLock(t.Context(), t, lock)
	r.wantHeld(h, "1")
	if h.Name() != r.name || h.Depth() != 1 || h.Err() != nil || isClosed(h.Lost()) {
		t.Errorf("the hold: name %q, depth %d, Err %v, lost %v", h.Name(), h.Depth(), h.Err(), isClosed(h.Lost()))
	}
	mustUnlock(t, h)
	r.wantFree()
	wantIs(t, h.Err(), rlock.ErrNotHeld)
	if errors.Is(h.Err(), rlock.ErrLost) || isClosed(h.Lost()) {
		t.Errorf("after Unlock: Err %v, lost %v", h.Err(), isClosed(h.Lost()))
	}
}

func TestTryLockWithoutAWaitMakesOneAttempt(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	other, lock := r.lock(), r.lock()
	h := mustLock(t.Context(), t, other, rlock.WithLease(time.Minute))
	monitor := r.Monitor(t)
	for _, wait := range []time.Duration{0, -time.Second} {
		_, err := lock.TryLock(t.Context(), wait)
		wantIs(t, err, rlock.ErrNotAcquired)
	}
	if got := namesOf(monitor.Stop(t), "EVALSHA", "EVAL", "SUBSCRIBE"); !slices.Equal(got, []string{"EVALSHA", "EVALSHA"}) {
		t.Errorf("two attempts sent %v", got)
	}
	mustUnlock(t, h)
	h, err := lock.TryLock(t.Context(), 0)
	if err != nil {
		t.Fatalf("TryLock of a free lock: %v", err)
	}
	mustUnlock(t, h)
}

func TestTryLockGivesUpWhenItsWaitIsOver(t *testing.T) {
	r := newRig(t)
	other, lock := r.lock(), r.lock()
	h := mustLock(t.Context(), t, other, rlock.WithLease(time.Minute))
	start := time.Now()
	_, err := lock.TryLock(t.Context(), 300*time.Millisecond)
	wantIs(t, err, rlock.ErrNotAcquired)
	if took := time.Since(start); took < 300*time.Millisecond || took > 300*time.Millisecond+late {
		t.Errorf("a wait of 300ms took %v", took)
	}
	mustUnlock(t, h)
}

func TestAWaitMayBeLongerThanTheLease(t *testing.T) {
	r := newRig(t)
	other, lock := r.shortLock(), r.lock()
	h := mustLock(t.Context(), t, other)
	waiter := begin(func() (*rlock.Hold, error) {
		return lock.TryLock(t.Context(), stuck, rlock.WithLease(lease/2))
	})
	outlive(t, h)
	mustUnlock(t, h)
	h = awaitHold(t, waiter, woken)
	r.wantTTL(0, lease/2)
	if err := h.Unlock(t.Context()); err != nil && !errors.Is(err, rlock.ErrLost) {
		t.Error(err)
	}
}

func TestAWaiterIsWokenByTheRelease(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	for who, waiting := range map[string]*rlock.RLock{"same client": lock, "another client": r.lock()} {
		h := mustLock(t.Context(), t, lock)
		waiter := begin(func() (*rlock.Hold, error) { return waiting.Lock(t.Context()) })
		r.awaitWaiter(r.name)
		mustUnlock(t, h)
		h = awaitHold(t, waiter, woken)
		t.Logf("%s: %s", who, h.Owner())
		r.wantHeld(h, "1")
		mustUnlock(t, h)
	}
}

func TestDoHoldsTheLockWhileFnRuns(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	errWork := errors.New("work failed")
	for _, want := range []error{nil, errWork} {
		err := lock.Do(t.Context(), func(ctx context.Context) error {
			h, ok := lock.HoldFrom(ctx)
			if !ok {
				t.Fatal("the context of fn does not carry the hold")
			}
			r.wantHeld(h, "1") //nolint:contextcheck // it looks on from outside, not from inside the lock
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("Do returned %v, want %v", err, want)
		}
		r.wantFree()
	}
}

func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var recovered any
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { recovered = recover() }()
				_ = lock.TryDo(t.Context(), stuck, func(context.Context) error { leave(); return nil })
			})
			wg.Wait()
			r.wantFree()
			if name == "panic" && recovered != "boom" {
				t.Errorf("the panic came out as %v", recovered)
			}
		})
	}
}

func TestFnDoesNotRunWithoutTheLock(t *testing.T) {
	r := newRig(t)
	h := mustLock(t.Context(), t, r.lock())
	lock := r.lock()
	fn := func(context.Context) error { t.Error("fn runs while another owner is inside"); return nil }
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		wantIs(t, lock.TryDo(t.Context(), wait, fn), rlock.ErrNotAcquired)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantIs(t, lock.Do(ctx, fn), context.DeadlineExceeded)
	mustUnlock(t, h)
	ran := false
	if err := lock.TryDo(t.Context(), 0, func(context.Context) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("TryDo of a free lock: %v, fn ran: %v", err, ran)
	}
}

func TestDoTellsOfALossWhateverFnReturns(t *testing.T) {
	r := newRig(t)
	lock := r.shortLock()
	for _, result := range []error{nil, context.Canceled, errors.New("work failed")} {
		err := lock.Do(t.Context(), func(ctx context.Context) error {
			r.del() //nolint:contextcheck // it looks on from outside, not from inside the lock
			await(t, ctx.Done(), lease+late, "the context of fn ends on loss")
			wantIs(t, context.Cause(ctx), rlock.ErrLost)
			return result
		})
		wantIs(t, err, rlock.ErrLost)
		if !errors.Is(err, result) && result != nil {
			t.Errorf("Do returned %v, want fn's %v in it", err, result)
		}
	}
}

// Leases.

func TestALeaseOfZeroOrLessIsRefused(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		_, err := lock.Lock(t.Context(), rlock.WithLease(d))
		if err == nil || !strings.Contains(err.Error(), "leave WithLease out to use the watchdog") {
			t.Errorf("WithLease(%v): %v", d, err)
		}
	}
	_, err := lock.Lock(t.Context(), rlock.WithWatchdog(0))
	if err == nil || !strings.Contains(err.Error(), "WithWatchdog") {
		t.Errorf("WithWatchdog(0): %v", err)
	}
	r.wantFree()
}

func TestTheWatchdogKeepsALock(t *testing.T) {
	r := newRig(t)
	for name, test := range map[string]struct {
		lock *rlock.RLock
		opts []rlock.LockOption
	}{
		"with the lease of the options": {r.shortLock(), nil},
		"with a lease of its own":       {r.lock(), []rlock.LockOption{rlock.WithWatchdog(lease)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := mustLock(t.Context(), t, test.lock, test.opts...)
			r.wantTTL(0, lease)
			outlive(t, h)
			r.wantHeld(h, "1")
			r.wantTTL(0, lease)
			mustUnlock(t, h)
		})
	}
}

func TestAFixedLeaseEndsUnrenewed(t *testing.T) {
	r := newRig(t)
	start := time.Now()
	h := mustLock(t.Context(), t, r.lock(), rlock.WithLease(lease/2))
	locked := time.Now()
	r.wantTTL(0, lease/2)
	if end := h.ValidUntil(); end.Before(start.Add(lease/2)) || end.After(locked.Add(lease/2)) {
		t.Errorf("ValidUntil is %v after Lock was called", end.Sub(start))
	}
	other := mustLock(t.Context(), t, r.lock())
	wantIs(t, h.Err(), rlock.ErrLost) // by its own clock, before anybody else is in
	await(t, h.Lost(), late, "Lost is closed")
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
	r.wantHeld(other, "1")
	mustUnlock(t, other)
}

func TestRenewExtendsAndNeverShortens(t *testing.T) {
	r := newRig(t)
	h := mustLock(t.Context(), t, r.lock(), rlock.WithLease(10*time.Second))
	if err := h.Renew(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	r.wantTTL(50*time.Second, time.Minute)
	end := h.ValidUntil()
	if left := time.Until(end); left < 50*time.Second || left > time.Minute {
		t.Errorf("ValidUntil is in %v", left)
	}
	if err := h.Renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	r.wantTTL(50*time.Second, time.Minute)
	if h.ValidUntil().Before(end) {
		t.Errorf("ValidUntil went back by %v", end.Sub(h.ValidUntil()))
	}
	if err := h.Renew(t.Context(), 0); err == nil {
		t.Error("a lease of 0 was accepted")
	}
	mustUnlock(t, h)
	wantIs(t, h.Renew(t.Context(), time.Minute), rlock.ErrNotHeld)
	r.wantFree()
}

// Errors.

func TestALockErrorSaysWhatFailedOnWhichLock(t *testing.T) {
	r := newRig(t)
	other := mustLock(t.Context(), t, r.lock(), rlock.WithLease(time.Minute))
	lock := r.client(rlock.Options{KeyPrefix: r.prefix}).NewRLock("lock")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"Lock":    func() error { _, err := lock.Lock(ended); return err },
		"TryLock": func() error { _, err := lock.TryLock(t.Context(), 0); return err },
		"Do":      func() error { return lock.Do(ended, func(context.Context) error { return nil }) },
		"TryDo":   func() error { return lock.TryDo(t.Context(), 0, func(context.Context) error { return nil }) },
		"Info":    func() error { _, err := lock.Info(ended); return err },
		"ForceUnlock": func() error {
			_, err := lock.ForceUnlock(ended)
			return err
		},
	}
	for op, call := range calls {
		err := call()
		failure, ok := errors.AsType[*rlock.LockError](err)
		if !ok || failure.Op != op || failure.Name != "lock" || failure.Err == nil {
			t.Errorf("%s: got %#v", op, err)
		} else if text := err.Error(); !strings.Contains(text, op) || !strings.Contains(text, `"lock"`) {
			t.Errorf("%s: the text is %q", op, text)
		}
		if retry := failure.RetryAfter; errors.Is(err, rlock.ErrNotAcquired) && (retry <= 50*time.Second || retry > time.Minute) {
			t.Errorf("%s: RetryAfter is %v", op, retry)
		}
	}
	mustUnlock(t, other)
}

func TestEveryErrorIsToldApart(t *testing.T) {
	r := newRig(t)
	lock, other := r.lock(), r.lock()
	errWhy := errors.New("the request was withdrawn")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errWhy)
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()

	h := mustLock(t.Context(), t, lock)
	inner := mustLock(h.Context(t.Context()), t, lock)
	_, innerHold := lock.TryLock(h.Context(t.Context()), 0)
	_, notAcquired := other.TryLock(t.Context(), 10*time.Millisecond)
	_, deadline := other.Lock(short)
	_, canceled := other.Lock(cancelled)
	mustUnlock(t, inner)
	mustUnlock(t, h)
	notHeld := h.Unlock(t.Context())
	h = mustLock(t.Context(), t, lock)
	r.del()
	lost := h.Unlock(t.Context())
	closing := r.client(rlock.Options{})
	_ = closing.Close()
	_, closed := closing.NewRLock(r.name).Lock(t.Context())
	dead := r.client(rlock.Options{}, func(o *redis.Options) { o.Addr, o.DialerRetries = nobody, 1 })
	_, redisFailed := dead.NewRLock(r.name).TryLock(t.Context(), 100*time.Millisecond)

	all := []error{
		rlock.ErrNotAcquired, rlock.ErrNotHeld, rlock.ErrLost, rlock.ErrInnerHold, rlock.ErrClosed,
		context.Canceled, context.DeadlineExceeded, errWhy, syscall.ECONNREFUSED,
	}
	for _, test := range []struct {
		what string
		err  error
		is   []error
	}{
		{"held by another", notAcquired, []error{rlock.ErrNotAcquired}},
		{"an open inner hold", innerHold, []error{rlock.ErrInnerHold}},
		{"a deadline", deadline, []error{context.DeadlineExceeded}},
		{"a cancelled context", canceled, []error{context.Canceled, errWhy}},
		{"a second Unlock", notHeld, []error{rlock.ErrNotHeld}},
		{"a lost hold", lost, []error{rlock.ErrLost, rlock.ErrNotHeld}},
		{"a closed client", closed, []error{rlock.ErrClosed}},
		{"no server", redisFailed, []error{syscall.ECONNREFUSED}},
	} {
		for _, target := range all {
			if got, want := errors.Is(test.err, target), slices.Contains(test.is, target); got != want {
				t.Errorf("%s: errors.Is(%v, %q) is %v", test.what, test.err, target, got)
			}
		}
	}
}

// Re-entry.

func TestAReentrantLockCountsItsHolds(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	same := lock // any RLock of this client and name is the same lock
	err := lock.Do(t.Context(), func(ctx context.Context) error {
		outer, _ := lock.HoldFrom(ctx)
		type key struct{}
		derived, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), stuck)
		defer cancel()
		return same.TryDo(derived, 0, func(ctx context.Context) error {
			inner, _ := lock.HoldFrom(ctx)
			if inner.Owner() != outer.Owner() || inner.Depth() != 2 || outer.Depth() != 1 {
				t.Errorf("depths %d in %d, owners %s in %s", inner.Depth(), outer.Depth(), inner.Owner(), outer.Owner())
			}
			r.wantHeld(outer, "2") //nolint:contextcheck // it looks on from outside, not from inside the lock
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	r.wantFree()
}

func TestWithoutItsContextAGoroutineIsAnotherOwner(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	h := mustLock(t.Context(), t, lock)
	_, err := lock.TryLock(t.Context(), 0)
	wantIs(t, err, rlock.ErrNotAcquired)
	mustUnlock(t, h)
}

func TestADifferentNameNeverSharesTheOwner(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{KeyPrefix: r.prefix})
	a, b := c.NewRLock("a"), c.NewRLock("b")
	ha := mustLock(t.Context(), t, a)
	hb := mustLock(ha.Context(t.Context()), t, b)
	if hb.Owner() == ha.Owner() || hb.Depth() != 1 {
		t.Errorf("a and b share the owner %s (depth of b: %d)", ha.Owner(), hb.Depth())
	}
	// The chain carries both, and each is found by its name.
	ctx := hb.Context(ha.Context(t.Context()))
	for lock, want := range map[*rlock.RLock]*rlock.Hold{a: ha, b: hb} {
		if got, ok := lock.HoldFrom(ctx); !ok || got != want {
			t.Errorf("HoldFrom of %s found %v", lock.Name(), got)
		}
	}
	mustUnlock(t, ha)
	mustUnlock(t, hb)
}

func TestTwoClientsNeverReenterEachOther(t *testing.T) {
	r := newRig(t)
	a, b := r.lock(), r.lock()
	h := mustLock(t.Context(), t, a)
	_, err := b.TryLock(h.Context(t.Context()), 0)
	wantIs(t, err, rlock.ErrNotAcquired)
	if got, ok := b.HoldFrom(h.Context(t.Context())); ok {
		t.Errorf("another client's lock finds %v", got)
	}
	r.wantHeld(h, "1")
	mustUnlock(t, h)
}

func TestReenteringALostHoldIsErrLost(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	h := mustLock(t.Context(), t, lock)
	ctx := h.Context(t.Context())
	r.del()
	for what, ctx := range map[string]context.Context{
		"not told yet": ctx, "told": ctx, "told, in a context that goes on": context.WithoutCancel(ctx),
	} {
		_, err := lock.Lock(ctx)
		if !errors.Is(err, rlock.ErrLost) {
			t.Errorf("%s: got %v", what, err)
		}
		r.wantFree()
	}
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
}

func TestTheContextOfAnUnlockedHoldCarriesNothing(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	h := mustLock(t.Context(), t, lock)
	ctx := h.Context(t.Context())
	mustUnlock(t, h)
	if got, ok := lock.HoldFrom(ctx); ok {
		t.Errorf("HoldFrom finds %v", got)
	}
	fresh := mustLock(context.WithoutCancel(ctx), t, lock)
	if fresh.Owner() == h.Owner() || fresh.Depth() != 1 {
		t.Errorf("the lock was re-entered: owner %s, depth %d", fresh.Owner(), fresh.Depth())
	}
	mustUnlock(t, fresh)
}

func TestTheContextOfAHoldEndsWithIt(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	h := mustLock(t.Context(), t, lock)
	ctx, fromParent := h.Context(t.Context()), h.Context(parent)
	if ctx.Err() != nil || fromParent.Err() != nil || fromParent.Value(key{}) != "value" {
		t.Errorf("while held: %v, %v, value %v", ctx.Err(), fromParent.Err(), fromParent.Value(key{}))
	}
	cancel()
	await(t, fromParent.Done(), late, "a context ends with its parent")
	if ctx.Err() != nil || h.Err() != nil {
		t.Errorf("the end of one context ended the hold: %v, %v", ctx.Err(), h.Err())
	}
	mustUnlock(t, h)
	if ctx.Err() == nil || !isClosed(ctx.Done()) {
		t.Error("the context goes on after Unlock")
	}
	wantIs(t, context.Cause(ctx), rlock.ErrNotHeld)
	wantIs(t, context.Cause(h.Context(t.Context())), rlock.ErrNotHeld)
}

func TestWithoutHoldsIsAFreshOwner(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	type key struct{}
	h := mustLock(t.Context(), t, lock)
	inside := h.Context(context.WithValue(t.Context(), key{}, "value"))
	outside := rlock.WithoutHolds(inside)
	if got, ok := lock.HoldFrom(outside); ok {
		t.Errorf("HoldFrom finds %v", got)
	}
	_, err := lock.TryLock(outside, 0)
	wantIs(t, err, rlock.ErrNotAcquired)
	if outside.Value(key{}) != "value" {
		t.Error("the values are gone too")
	}
	mustUnlock(t, h)
	if outside.Err() == nil {
		t.Error("the cancellation is gone too")
	}
}

func TestHoldFromFindsTheInnermostLiveHold(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	if _, ok := lock.HoldFrom(t.Context()); ok {
		t.Error("a plain context carries a hold")
	}
	outer := mustLock(t.Context(), t, lock)
	inner := mustLock(outer.Context(t.Context()), t, lock)
	ctx := inner.Context(outer.Context(t.Context()))
	if got, ok := lock.HoldFrom(ctx); !ok || got != inner {
		t.Errorf("found %v, want the inner hold", got)
	}
	mustUnlock(t, inner)
	if got, ok := lock.HoldFrom(ctx); !ok || got != outer {
		t.Errorf("found %v, want the outer hold", got)
	}
	mustUnlock(t, outer)
	if got, ok := lock.HoldFrom(ctx); ok {
		t.Errorf("found %v, want none", got)
	}
}

func TestSiblingsTakeTurns(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	h := mustLock(t.Context(), t, lock)
	contend(h.Context(t.Context()), t, 10, slices.Repeat([]*rlock.RLock{lock}, 4)...)
	r.wantHeld(h, "1")
	mustUnlock(t, h)
}

func TestAWaitForOnesOwnInnerHoldEndsWithErrInnerHold(t *testing.T) {
	r := newRig(t)
	lock := r.shortLock()
	outer := mustLock(t.Context(), t, lock)
	ctx := outer.Context(t.Context())
	before := time.Now().Round(0)
	inner := mustLock(ctx, t, lock)
	after := time.Now().Round(0)

	start := time.Now()
	for _, wait := range []time.Duration{0, 10 * time.Millisecond} {
		_, err := lock.TryLock(ctx, wait)
		wantIs(t, err, rlock.ErrInnerHold)
	}
	if took := time.Since(start); took >= lease {
		t.Errorf("no wait and a short wait took %v", took)
	}

	start = time.Now()
	_, err := lock.Lock(ctx) // waits for itself
	wantIs(t, err, rlock.ErrInnerHold)
	if took := time.Since(start); took < lease || took > lease+late {
		t.Errorf("a wait for oneself ended after %v, want Options.Lease", took)
	}
	_, text, _ := strings.Cut(fmt.Sprint(err), "since ")
	text, _, _ = strings.Cut(text, " ")
	if since, err := time.Parse(time.RFC3339Nano, text); err != nil || since.Before(before) || since.After(after) {
		t.Errorf("the inner hold is open since %q (%v), want a time between %v and %v", text, err, before, after)
	}
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

// Unlock.

func TestHoldsOfOneOwnerAreUnlockedInAnyOrderFromAnyGoroutine(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		first := mustLock(t.Context(), t, lock)
		second := mustLock(first.Context(t.Context()), t, lock)
		third := mustLock(second.Context(t.Context()), t, lock)
		r.wantHeld(first, "3")
		holds := []*rlock.Hold{first, second, third}
		for i, n := range order {
			var wg sync.WaitGroup
			wg.Go(func() { mustUnlock(t, holds[n]) })
			wg.Wait()
			if left := 2 - i; left > 0 {
				r.wantHeld(first, strconv.Itoa(left))
			}
		}
		r.wantFree()
	}
}

func TestOnlyTheFirstUnlockSucceeds(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	outer := mustLock(t.Context(), t, lock)
	inner := mustLock(outer.Context(t.Context()), t, lock)
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			err := inner.Unlock(t.Context())
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	succeeded := 0
	for _, err := range errs {
		if err == nil {
			succeeded++
			continue
		}
		wantIs(t, err, rlock.ErrNotHeld)
	}
	if succeeded != 1 {
		t.Errorf("%d calls of Unlock succeeded: %v", succeeded, errs)
	}
	r.wantHeld(outer, "1")
	mustUnlock(t, outer)
	next := mustLock(t.Context(), t, r.lock())
	wantIs(t, outer.Unlock(t.Context()), rlock.ErrNotHeld)
	r.wantHeld(next, "1")
	mustUnlock(t, next)
}

func TestUnlockWorksOnACancelledContext(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancelExpired := context.WithTimeout(t.Context(), -time.Second)
	defer cancelExpired()
	for _, ctx := range []context.Context{cancelled, expired} {
		h := mustLock(t.Context(), t, lock)
		if err := h.Unlock(ctx); err != nil {
			t.Error(err)
		}
		r.wantFree()
	}
}

func TestTheEndOfTheContextDoesNotReleaseTheLock(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := mustLock(ctx, t, r.shortLock())
	cancel()
	outlive(t, h)
	r.wantHeld(h, "1")
	mustUnlock(t, h)
}

// Validity belongs to the owner.

func TestReentryNeverShortensTheLease(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	outer := mustLock(t.Context(), t, lock, rlock.WithLease(time.Minute))
	end := outer.ValidUntil()
	inner := mustLock(outer.Context(t.Context()), t, lock, rlock.WithLease(lease))
	r.wantTTL(50*time.Second, time.Minute)
	if got := inner.ValidUntil(); !got.Equal(end) || !outer.ValidUntil().Equal(end) {
		t.Errorf("after a shorter re-entry the holds are valid until %v and %v, want %v", outer.ValidUntil(), got, end)
	}
	mustUnlock(t, inner)
	r.wantTTL(50*time.Second, time.Minute)

	inner = mustLock(outer.Context(t.Context()), t, lock, rlock.WithLease(time.Hour))
	r.wantTTL(59*time.Minute, time.Hour)
	if got := outer.ValidUntil(); got != inner.ValidUntil() || time.Until(got) < 59*time.Minute {
		t.Errorf("after a longer re-entry the outer hold is valid until %v, the inner until %v", got, inner.ValidUntil())
	}
	mustUnlock(t, inner)
	r.wantTTL(59*time.Minute, time.Hour) // stays as it is
	mustUnlock(t, outer)
}

func TestWithoutAnEntitledHoldTheTTLRunsOut(t *testing.T) {
	r := newRig(t)
	lock := r.shortLock()
	outer := mustLock(t.Context(), t, lock, rlock.WithLease(lease))
	inner := mustLock(outer.Context(t.Context()), t, lock) // wants the watchdog
	outlive(t, outer)
	mustUnlock(t, inner)
	r.wantHeld(outer, "1")
	r.wantTTL(0, lease)
	end := outer.ValidUntil()
	await(t, outer.Lost(), lease+late, "what is left of the TTL runs out")
	if now := time.Now(); now.Before(end) || !outer.ValidUntil().Equal(end) {
		t.Errorf("lost %v before the end of the lease", end.Sub(now))
	}
	wantIs(t, outer.Unlock(t.Context()), rlock.ErrLost)
}

func TestTheWatchdogWorksAsLongAsOneHoldWantsIt(t *testing.T) {
	r := newRig(t)
	lock := r.shortLock()
	outer := mustLock(t.Context(), t, lock)
	for _, opt := range []rlock.LockOption{rlock.WithLease(lease / 2), rlock.WithWatchdog(2 * lease)} {
		inner := mustLock(outer.Context(t.Context()), t, lock, opt)
		mustUnlock(t, inner)
		outlive(t, outer)
	}
	mustUnlock(t, outer)
}

func TestTheHoldsOfOneOwnerAreLostTogether(t *testing.T) {
	r := newRig(t)
	lock := r.shortLock()
	outer := mustLock(t.Context(), t, lock)
	inner := mustLock(outer.Context(t.Context()), t, lock)
	if !outer.ValidUntil().Equal(inner.ValidUntil()) {
		t.Errorf("valid until %v and %v", outer.ValidUntil(), inner.ValidUntil())
	}
	r.del()
	await(t, inner.Lost(), lease+late, "the loss is told")
	for _, h := range []*rlock.Hold{outer, inner} {
		if !isClosed(h.Lost()) {
			t.Errorf("depth %d was not told", h.Depth())
		}
		wantIs(t, h.Err(), rlock.ErrLost)
		wantIs(t, context.Cause(h.Context(t.Context())), rlock.ErrLost)
		wantIs(t, h.Unlock(t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
	}
}

// ForceUnlock and Info.

func TestForceUnlockTakesTheLockFromWhoeverHasIt(t *testing.T) {
	r := newRig(t)
	a, b := r.shortLock(), r.lock()
	if freed, err := b.ForceUnlock(t.Context()); freed || err != nil {
		t.Errorf("of a free lock: %v, %v", freed, err)
	}
	outer := mustLock(t.Context(), t, a)
	mustLock(outer.Context(t.Context()), t, a)
	waiter := begin(func() (*rlock.Hold, error) { return b.Lock(t.Context()) })
	r.awaitWaiter(r.name)
	if freed, err := b.ForceUnlock(t.Context()); !freed || err != nil {
		t.Errorf("of another client's lock: %v, %v", freed, err)
	}
	next := awaitHold(t, waiter, woken)
	await(t, outer.Lost(), lease+late, "the holder is told at its next renewal")
	wantIs(t, outer.Unlock(t.Context()), rlock.ErrLost)
	r.wantHeld(next, "1")

	if freed, err := b.ForceUnlock(t.Context()); !freed || err != nil {
		t.Errorf("of its own lock: %v, %v", freed, err)
	}
	wantIs(t, next.Err(), rlock.ErrLost) // told at once
	r.wantFree()
}

func TestInfoIsWhatRedisKnows(t *testing.T) {
	r := newRig(t)
	lock, other := r.lock(), r.lock()
	if got, err := other.Info(t.Context()); err != nil || got != (rlock.Info{}) {
		t.Errorf("of a free lock: %+v, %v", got, err)
	}
	outer := mustLock(t.Context(), t, lock, rlock.WithLease(time.Minute))
	inner := mustLock(outer.Context(t.Context()), t, lock)
	got, err := other.Info(t.Context())
	if err != nil || !got.Held || got.Owner != outer.Owner() || got.Count != 2 {
		t.Errorf("got %+v, %v, want count 2 of %s", got, err, outer.Owner())
	}
	if got.TTL <= 50*time.Second || got.TTL > time.Minute {
		t.Errorf("the TTL is %v", got.TTL)
	}
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

// Shutdown and Close.

func TestShutdownWaitsForOpenHolds(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	lock := c.NewRLock(r.name)
	h := mustLock(t.Context(), t, lock)
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	r.awaitWaiter(r.name)
	ended := make(chan error, 1)
	go func() { ended <- c.Shutdown(t.Context()) }()

	wantIs(t, awaitErr(t, waiter, late), rlock.ErrClosed)
	_, err := c.NewRLock(r.prefix + "another").Lock(t.Context())
	wantIs(t, err, rlock.ErrClosed)
	inner := mustLock(h.Context(t.Context()), t, lock)
	outlive(t, h)
	mustUnlock(t, inner)
	if len(ended) != 0 {
		t.Error("Shutdown returned with a hold open")
	}
	mustUnlock(t, h)
	if err := await(t, ended, late, "Shutdown returns"); err != nil {
		t.Error(err)
	}
}

func TestShutdownCanBeGivenUpAndCalledAgain(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	h := mustLock(t.Context(), t, c.NewRLock(r.name))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantIs(t, c.Shutdown(ctx), context.DeadlineExceeded)
	outlive(t, h)
	mustUnlock(t, h)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseLosesWhatIsHeldAndLeavesTheKeyToItsLease(t *testing.T) {
	r := newRig(t)
	c, other := r.client(rlock.Options{Lease: lease}), r.lock()
	lock := c.NewRLock(r.name)
	h := mustLock(t.Context(), t, lock)
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	r.awaitWaiter(r.name)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wantIs(t, h.Err(), rlock.ErrLost, rlock.ErrClosed)
	if !isClosed(h.Lost()) {
		t.Error("Lost is open")
	}
	wantIs(t, awaitErr(t, waiter, late), rlock.ErrClosed)
	_, err := lock.TryLock(t.Context(), 0)
	wantIs(t, err, rlock.ErrClosed)

	h = mustLock(t.Context(), t, other) // after the lease: nobody renews it
	mustUnlock(t, h)
}

func TestUnlockAfterCloseStillReleases(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{})
	h := mustLock(t.Context(), t, c.NewRLock(r.name))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	r.wantHeld(h, "1")
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
	r.wantFree()
}
