package latchkey_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// 1. Exclusion, and how a holder learns that it is over.

func TestAtMostOneOwnerIsInside(t *testing.T) {
	r := newRig(t)
	var contenders []*rlock.RLock
	for range 4 {
		lock := r.lock()
		contenders = append(contenders, lock, lock, lock, lock)
	}
	contend(t.Context(), t, 10, contenders...)
}

func TestALossIsToldAtOnceWhenRedisSaysSo(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	for what, ask := range map[string]func(*rlock.Hold) error{
		"Renew": func(h *rlock.Hold) error { return h.Renew(t.Context(), time.Minute) },
		"re-entry": func(h *rlock.Hold) error {
			_, err := lock.Lock(h.Context(t.Context()))
			return err
		},
	} {
		h := mustLock(t.Context(), t, lock)
		ctx := h.Context(t.Context())
		r.del()
		if err := ask(h); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("%s: got %v", what, err)
		}
		wantIs(t, h.Err(), rlock.ErrLost)
		wantIs(t, context.Cause(ctx), rlock.ErrLost)
		if !isClosed(h.Lost()) {
			t.Errorf("%s: Lost is open", what)
		}
		wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
	}
	// Unlock asks too: one hold's tells the others of the owner.
	outer := mustLock(t.Context(), t, lock)
	inner := mustLock(outer.Context(t.Context()), t, lock)
	r.del()
	wantIs(t, inner.Unlock(t.Context()), rlock.ErrLost)
	wantIs(t, outer.Err(), rlock.ErrLost)
	wantIs(t, outer.Unlock(t.Context()), rlock.ErrLost)
}

func TestTheNextRenewalTellsOfALoss(t *testing.T) {
	r := newRig(t)
	// The lease would tell in a minute; the renewal comes after 100 ms.
	c := r.client(rlock.Options{Lease: time.Minute, RenewEvery: 100 * time.Millisecond})
	h := mustLock(t.Context(), t, c.NewRLock(r.name))
	r.del()
	other := mustLock(t.Context(), t, r.lock())
	await(t, h.Lost(), 100*time.Millisecond+late, "the loss is told")
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
	r.wantHeld(other, "1")
	mustUnlock(t, other)
}

func TestAHolderLearnsOfALossByItsOwnClock(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	h := mustLock(t.Context(), t, r.shortLock())
	ctx := h.Context(t.Context())
	r.pause() // from here on no renewal is answered, and nobody says so
	paused := time.Now()
	redistest.Eventually(t, lease+late, func() bool {
		now := time.Now()
		err, ended := h.Err(), ctx.Err()
		if over := !now.Before(h.ValidUntil()); over && (err == nil || ended == nil) {
			t.Fatalf("%v after ValidUntil: Err %v, context %v", now.Sub(h.ValidUntil()), err, ended)
		}
		return err != nil
	}, "the loss is told")
	if end := h.ValidUntil(); end.After(paused.Add(lease)) {
		t.Errorf("it was valid for %v after the last answer that can have come, more than the lease", end.Sub(paused))
	}
	await(t, h.Lost(), late, "Lost is closed")
	await(t, ctx.Done(), late, "the context ends")
	wantIs(t, context.Cause(ctx), rlock.ErrLost)

	r.resume() // late renewals revive nothing
	other := mustLock(t.Context(), t, r.lock())
	wantIs(t, h.Err(), rlock.ErrLost)
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
	r.wantHeld(other, "1")
	mustUnlock(t, other)
}

func TestAHoldIsValidWhenItIsGivenOut(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	mustUnlock(t, mustLock(t.Context(), t, lock))
	r.pause()
	// The attempts pile up at the server, and are answered long after their leases.
	waiter := begin(func() (*rlock.Hold, error) {
		return lock.TryLock(t.Context(), stuck, rlock.WithLease(300*time.Millisecond))
	})
	after(lease, func() { _ = r.Resume() })
	got := await(t, waiter, stuck, "the lock is granted")
	returned := time.Now()
	if got.err != nil {
		t.Fatal(got.err)
	}
	if left := got.hold.ValidUntil().Sub(returned); left > 300*time.Millisecond || left < -late {
		t.Errorf("the hold is valid for %v", left)
	}
	if err := got.hold.Unlock(t.Context()); err != nil && !errors.Is(err, rlock.ErrLost) {
		t.Error(err)
	}
}

// 2. No orphan.

func TestACancelledLockLeavesNoOrphan(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{KeyPrefix: r.prefix})
	locked := 0
	for i := range 250 {
		lock := c.NewRLock(strconv.Itoa(i % 50)) // some are contended by what is left behind
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		h, err := lock.Lock(ctx)
		cancel()
		if err == nil {
			locked++
			mustUnlock(t, h)
			continue
		}
		wantIs(t, err, context.DeadlineExceeded)
	}
	if locked == 0 || locked == 250 {
		t.Errorf("%d of 250 were acquired: no cancellation met an attempt", locked)
	}
	r.CheckNoKeys(t, r.prefix) // in 2 s, of a lease of 30
}

func TestALockGivenUpAtAReleaseLeavesNoOrphan(t *testing.T) {
	r := newRig(t)
	holder, lock := r.lock(), r.lock()
	for i := range 40 {
		h := mustLock(t.Context(), t, holder)
		wait := 20 * time.Millisecond
		waiter := begin(func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), wait) })
		released := after(wait+time.Duration(i-20)*100*time.Microsecond, func() { mustUnlock(t, h) })
		got := await(t, waiter, wait+late, "the wait ends")
		await(t, released, late, "the holder has released")
		if got.err == nil {
			mustUnlock(t, got.hold)
		}
		r.CheckNoKeys(t, r.prefix)
	}
}

func TestALockGivenUpWithoutAnAnswerLeavesNoOrphan(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	c := r.client(rlock.Options{KeyPrefix: r.prefix})
	mustUnlock(t, mustLock(t.Context(), t, c.NewRLock("warm")))
	r.pause()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := c.NewRLock(strconv.Itoa(i)).Lock(ctx); err == nil {
				t.Error("a server that does not answer has granted a lock")
			}
		})
	}
	wg.Wait()
	r.resume() // executes what was sent to it
	r.CheckNoKeys(t, r.prefix)
}

func TestALockWhoseAnswerIsLostLeavesNoOrphan(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	// An attempt is waited for a third of the lease, and its connection given up
	// before: what the server grants on it nobody hears.
	c := r.client(rlock.Options{Lease: 6 * time.Second}, func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
	lock := c.NewRLock(r.name)
	// On a busy machine an attempt may meet the pause while it still connects,
	// and then nothing is granted: one in ten must be.
	for range 10 {
		mustUnlock(t, mustLock(t.Context(), t, lock)) // so that there is a connection
		r.pause()
		ctx, cancel := context.WithCancel(t.Context())
		after(100*time.Millisecond, cancel)
		_, err := lock.Lock(ctx)
		cancel()
		r.resume()
		if err == nil {
			t.Fatal("a server that does not answer has granted a lock")
		}
		granted := r.seesAKey(time.Second)
		redistest.Eventually(t, 2*time.Second+late, func() bool { return len(r.inRedis()) == 0 },
			"a release, before the lease of 6 s ends it")
		if granted {
			return
		}
	}
	t.Error("the server never granted a lock that nobody heard of: nothing was shown")
}

// seesAKey looks for up to d whether the lock's key comes into being.
func (r *rig) seesAKey(d time.Duration) bool {
	end, look := time.After(d), time.NewTicker(2*time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if len(r.inRedis()) == 1 {
				return true
			}
		case <-end:
			return false
		}
	}
}

func TestAFailedReentryLeavesTheOuterHoldAsItWas(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	outer := mustLock(t.Context(), t, lock)
	r.pause()
	_, err := lock.TryLock(outer.Context(t.Context()), 200*time.Millisecond)
	if err == nil || errors.Is(err, rlock.ErrLost) || errors.Is(err, rlock.ErrInnerHold) {
		t.Errorf("the re-entry returned %v, want that Redis failed", err)
	}
	r.resume()
	if err := outer.Err(); err != nil {
		t.Errorf("the outer hold is over: %v", err)
	}
	redistest.Eventually(t, stuck, func() bool { return r.inRedis()[outer.Owner()] == "1" }, "the count is 1 again")
	inner := mustLock(outer.Context(t.Context()), t, lock)
	r.wantHeld(outer, "2")
	mustUnlock(t, inner)
	mustUnlock(t, outer)
	r.wantFree()
}

// 3. No lost wake-up. Leases are 30 s here, and a waiter that missed a release
// looks by itself only after recheck.

func TestAReleaseDuringTheSubscriptionIsNotMissed(t *testing.T) {
	r := newRig(t)
	holder := r.client(rlock.Options{KeyPrefix: r.prefix})
	for i := range 40 {
		name := strconv.Itoa(i)
		waiting := r.client(rlock.Options{KeyPrefix: r.prefix}) // has no connection yet
		h := mustLock(t.Context(), t, holder.NewRLock(name))
		waiter := begin(func() (*rlock.Hold, error) { return waiting.NewRLock(name).Lock(t.Context()) })
		after(time.Duration(i)*100*time.Microsecond, func() { mustUnlock(t, h) })
		mustUnlock(t, awaitHold(t, waiter, woken))
	}
}

func TestAReleaseDuringALossOfTheSubscriptionIsNotMissed(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	holder, lock := r.lock(), r.lock()
	for i := range 10 {
		h := mustLock(t.Context(), t, holder)
		waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
		r.awaitWaiter(r.name)
		released := after(time.Duration(i)*100*time.Microsecond, func() { mustUnlock(t, h) })
		if n, err := r.rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); n == 0 || err != nil {
			t.Fatalf("CLIENT KILL: %d, %v", n, err)
		}
		<-released
		mustUnlock(t, awaitHold(t, waiter, woken))
	}
}

func TestALockDeletedWithoutAMessageIsNoticed(t *testing.T) {
	for _, test := range []struct {
		name          string
		lease, within time.Duration
	}{
		{"when its TTL would have ended", lease, lease + late},
		{"when the waiter looks by itself", time.Minute, recheck + late},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			h := mustLock(t.Context(), t, r.lock(), rlock.WithLease(test.lease))
			lock := r.lock()
			waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
			r.awaitWaiter(r.name)
			r.del()
			mustUnlock(t, awaitHold(t, waiter, test.within))
			wantIs(t, h.Unlock(t.Context()), rlock.ErrLost)
		})
	}
}

func TestACrashedHoldersLockIsFreeAfterItsLease(t *testing.T) {
	r := newRig(t)
	lock := r.lock()
	// What a crash leaves: a key that nobody renews.
	if err := r.rdb.HSet(t.Context(), r.name, "the client that crashed:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.PExpire(t.Context(), r.name, lease).Err(); err != nil {
		t.Fatal(err)
	}
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	mustUnlock(t, awaitHold(t, waiter, lease+late))
}

func TestWithoutChannelRightsAWaiterPollsAndOthersAreUnharmed(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	err := r.rdb.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all",
		"resetchannels", "&redisson_lock__channel:{"+r.prefix+"good}").Err()
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	holder := r.client(rlock.Options{KeyPrefix: r.prefix})
	c := r.client(rlock.Options{KeyPrefix: r.prefix, Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	names := []string{"bad", "worse", "good"}
	holds, waiters := map[string]*rlock.Hold{}, map[string]<-chan outcome{}
	for _, name := range names {
		holds[name] = mustLock(t.Context(), t, holder.NewRLock(name))
		waiters[name] = begin(func() (*rlock.Hold, error) { return c.NewRLock(name).Lock(t.Context()) })
	}
	r.awaitWaiter(r.prefix + "good")
	for _, name := range names {
		mustUnlock(t, holds[name])
	}
	mustUnlock(t, awaitHold(t, waiters["good"], woken))
	for _, name := range []string{"bad", "worse"} {
		// Its Unlock may not publish, and releases all the same.
		mustUnlock(t, awaitHold(t, waiters[name], recheck+late))
	}
	if n := strings.Count(log.String(), "no rights on the unlock channel"); n != 1 {
		t.Errorf("the missing rights were reported %d times:\n%s", n, log.String())
	}
}

// 4. Waits end on time.

func TestWaitsEndOnTimeWhateverRedisDoes(t *testing.T) {
	const wait = 500 * time.Millisecond
	errWhy := errors.New("the request was withdrawn")
	for _, test := range []struct {
		name string
		lock func(context.Context, *rlock.RLock) error
		is   []error
	}{
		{"TryLock", func(ctx context.Context, l *rlock.RLock) error {
			_, err := l.TryLock(ctx, wait)
			return err
		}, nil},
		{"Lock with a deadline", func(ctx context.Context, l *rlock.RLock) error {
			ctx, cancel := context.WithTimeoutCause(ctx, wait, errWhy)
			defer cancel()
			_, err := l.Lock(ctx)
			return err
		}, []error{context.DeadlineExceeded, errWhy}},
		{"Lock, cancelled", func(ctx context.Context, l *rlock.RLock) error {
			ctx, cancel := context.WithCancelCause(ctx)
			after(wait, func() { cancel(errWhy) })
			_, err := l.Lock(ctx)
			return err
		}, []error{context.Canceled, errWhy}},
		{"TryLock without a wait, with a deadline", func(ctx context.Context, l *rlock.RLock) error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			_, err := l.TryLock(ctx, 0)
			return err
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRigAlone(t, redistest.Config{})
			c := r.client(rlock.Options{})
			h := mustLock(t.Context(), t, r.lock())
			queued := begin(func() (*rlock.Hold, error) { return nil, test.lock(t.Context(), c.NewRLock(r.name)) })
			r.pause()
			free := begin(func() (*rlock.Hold, error) { return nil, test.lock(t.Context(), c.NewRLock(r.prefix+"free")) })
			for _, waiter := range []<-chan outcome{queued, free} {
				if got := await(t, waiter, wait+late, "the wait ends"); got.err == nil {
					t.Error("a lock was acquired")
				} else {
					wantIs(t, got.err, test.is...)
				}
			}
			r.resume()
			mustUnlock(t, h)
		})
	}
}

func TestAServerThatFailsIsNotMistakenForAHolder(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	mustUnlock(t, mustLock(t.Context(), t, lock))
	r.pause()
	_, err := lock.TryLock(t.Context(), 500*time.Millisecond)
	if err == nil || errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that does not answer: %v", err)
	}
	r.resume()
}

// 5. Unlock.

func TestUnlockIsBoundedByUnlockTimeout(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	c := r.client(rlock.Options{UnlockTimeout: 500 * time.Millisecond})
	lock := c.NewRLock(r.name)
	h := mustLock(t.Context(), t, lock)
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	r.awaitWaiter(r.name)
	r.pause()
	start := time.Now()
	err := h.Unlock(t.Context())
	if took := time.Since(start); took > 500*time.Millisecond+late {
		t.Errorf("Unlock took %v", took)
	}
	if err == nil || !strings.Contains(err.Error(), "outcome unknown") || errors.Is(err, rlock.ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
	if err := h.Err(); !errors.Is(err, rlock.ErrNotHeld) || errors.Is(err, rlock.ErrLost) {
		t.Errorf("the hold after Unlock: %v", err)
	}
	r.resume() // the background goes on releasing, and waiters go by Redis
	next := awaitHold(t, waiter, woken)
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("the second Unlock: %v", err)
	}
	wantIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	r.wantHeld(next, "1")
	mustUnlock(t, next)
}

func TestAReleaseWithoutAnAnswerGoesOnInTheBackground(t *testing.T) {
	r := newRigAlone(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c := r.client(rlock.Options{UnlockTimeout: 300 * time.Millisecond})
	h := mustLock(t.Context(), t, c.NewRLock(r.name))
	r.pause()
	if err := h.Unlock(t.Context()); err == nil {
		t.Error("Unlock succeeded without an answer")
	}
	// What was sent so far dies with its connections, and the lock comes back.
	if err := errors.Join(r.Kill(), r.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.CheckNoKeys(t, r.prefix) // in 2 s, of a lease of 30
}

func TestUnlockOfALostHoldStillSendsItsRelease(t *testing.T) {
	r := newRig(t)
	h := mustLock(t.Context(), t, r.lock(), rlock.WithLease(lease/2))
	if err := r.rdb.PExpire(t.Context(), r.name, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, h.Lost(), lease/2+late, "the lease ends by the holder's clock")
	r.wantHeld(h, "1")
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
	r.wantFree()
}

// 6. Nothing leaks. That no goroutine is left is checked after each run too.

func TestNothingIsLeftAfterTheLastUnlock(t *testing.T) {
	// Not in parallel: it counts the goroutines of the process.
	r := rigOn(t, redistest.Shared(t))
	c, other := r.client(rlock.Options{Lease: lease}), r.client(rlock.Options{})
	before := runtime.NumGoroutine()
	h := mustLock(t.Context(), t, c.NewRLock(r.name))
	var waiters []<-chan outcome
	for range 10 {
		waiters = append(waiters,
			begin(func() (*rlock.Hold, error) { return c.NewRLock(r.name).Lock(t.Context()) }),
			begin(func() (*rlock.Hold, error) { return other.NewRLock(r.name).TryLock(t.Context(), 300*time.Millisecond) }))
	}
	outlive(t, h)
	mustUnlock(t, h)
	unlockAll(t, waiters)
	r.wantFree()
	redistest.Eventually(t, 500*time.Millisecond+late, func() bool { return runtime.NumGoroutine() <= before },
		"as many goroutines as before (%d)", before)
	r.CheckNoChannels(t, "redisson_lock__channel:*"+r.prefix+"*")
}

func TestCloseIsBoundedByUnlockTimeout(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	c := r.client(rlock.Options{Lease: lease, UnlockTimeout: 300 * time.Millisecond})
	mustUnlock(t, mustLock(t.Context(), t, c.NewRLock(r.name)))
	r.pause()
	waiter := begin(func() (*rlock.Hold, error) { return c.NewRLock(r.name).TryLock(t.Context(), stuck) })
	closed := after(50*time.Millisecond, func() { _ = c.Close() })
	await(t, closed, 350*time.Millisecond+late, "Close returns")
	wantIs(t, awaitErr(t, waiter, late), rlock.ErrClosed)
	r.resume() // what the server still grants to a client that is gone ends with its lease
}

func TestCloseReleasesWhatCallsInFlightWereGranted(t *testing.T) {
	r := newRig(t)
	for i := range 30 {
		c := r.client(rlock.Options{UnlockTimeout: 500 * time.Millisecond})
		mustUnlock(t, mustLock(t.Context(), t, c.NewRLock(r.prefix+"warm")))
		waiter := begin(func() (*rlock.Hold, error) { return c.NewRLock(r.name).Lock(t.Context()) })
		closed := after(time.Duration(i)*20*time.Microsecond, func() { _ = c.Close() })
		got := await(t, waiter, late, "Lock returns")
		await(t, closed, 500*time.Millisecond+late, "Close returns")
		if got.err == nil {
			wantIs(t, got.hold.Unlock(t.Context()), rlock.ErrLost) // it was held when the client closed
		} else {
			wantIs(t, got.err, rlock.ErrClosed)
		}
		r.wantFree() // at once: Close has waited for it
	}
}

// 7. Bad input, and what Redis refuses.

func TestABadNameIsRefused(t *testing.T) {
	r := newRig(t)
	c := r.client(rlock.Options{})
	for what, name := range map[string]string{"empty": "", "too long": r.prefix + strings.Repeat("x", 1<<20)} {
		lock := c.NewRLock(name)
		_, lockErr := lock.Lock(t.Context())
		_, infoErr := lock.Info(t.Context())
		_, forceErr := lock.ForceUnlock(t.Context())
		for _, err := range []error{lockErr, infoErr, forceErr} {
			if err == nil || !strings.Contains(err.Error(), "name") {
				t.Errorf("%s: got %v, want an error about the name", what, err)
			}
		}
	}
}

func TestARefusalOfRedisIsReturnedAtOnce(t *testing.T) {
	for _, test := range []struct {
		want string
		cfg  redistest.Config
		set  func(*rig) *redis.StatusCmd
		hook func(*redis.Options)
	}{
		{
			want: "WRONGTYPE",
			set:  func(r *rig) *redis.StatusCmd { return r.rdb.Set(t.Context(), r.name, "not a lock", time.Minute) },
		},
		{
			want: "NOPERM",
			set: func(r *rig) *redis.StatusCmd {
				cmd := redis.NewStatusCmd(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~other:*", "+@all", "&*")
				_ = r.rdb.Process(t.Context(), cmd)
				return cmd
			},
			hook: func(o *redis.Options) { o.Username, o.Password = "app", "secret" },
		},
		{
			want: "NOAUTH",
			cfg:  redistest.Config{Password: "secret"},
			hook: func(o *redis.Options) { o.Password = "" },
		},
		{
			want: "ERR unknown command",
			cfg:  redistest.Config{Conf: "rename-command EVALSHA \"\"\n"},
		},
	} {
		t.Run(test.want, func(t *testing.T) {
			r := newRigAlone(t, test.cfg)
			var hooks []func(*redis.Options)
			if test.hook != nil {
				hooks = append(hooks, test.hook)
			}
			if test.set != nil {
				if err := test.set(r).Err(); err != nil {
					t.Fatal(err)
				}
			}
			lock := r.client(rlock.Options{}, hooks...).NewRLock(r.name)
			start := time.Now()
			_, lockErr := lock.Lock(t.Context())
			_, tryErr := lock.TryLock(t.Context(), stuck)
			_, onceErr := lock.TryLock(t.Context(), 0)
			_, infoErr := lock.Info(t.Context())
			_, forceErr := lock.ForceUnlock(t.Context())
			for i, err := range []error{lockErr, tryErr, onceErr, infoErr, forceErr} {
				if refusal, ok := errors.AsType[redis.Error](err); !ok || !strings.Contains(refusal.Error(), test.want) {
					t.Errorf("call %d: got %v, want %s", i, err, test.want)
				}
				if errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, rlock.ErrLost) {
					t.Errorf("call %d: %v is mistaken for another", i, err)
				}
			}
			if took := time.Since(start); took > late {
				t.Errorf("the refusals took %v", took)
			}
			if test.want == "WRONGTYPE" {
				if got := r.rdb.GetDel(t.Context(), r.name).Val(); got != "not a lock" {
					t.Errorf("the other value became %q", got)
				}
			}
		})
	}
}

func TestAPassingFailureIsRetriedWithinTheBound(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	readOnly := func(on bool) {
		to := []any{"REPLICAOF", "NO", "ONE"}
		if on {
			to = []any{"REPLICAOF", "127.0.0.1", "1"}
		}
		if err := r.rdb.Do(t.Context(), to...).Err(); err != nil {
			t.Error(err)
		}
	}
	readOnly(true)
	_, err := lock.TryLock(t.Context(), 100*time.Millisecond)
	if !redis.IsReadOnlyError(err) || errors.Is(err, rlock.ErrNotAcquired) {
		t.Errorf("a bounded wait: %v, want READONLY in place of ErrNotAcquired", err)
	}
	if _, err := lock.Lock(t.Context()); !redis.IsReadOnlyError(err) {
		t.Errorf("an unbounded Lock: %v, want its first failure", err)
	}
	waiter := begin(func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), stuck) })
	after(100*time.Millisecond, func() { readOnly(false) })
	mustUnlock(t, awaitHold(t, waiter, woken))
}

func TestAWaiterSurvivesARestartOfRedis(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	holder, lock := r.lock(), r.lock()
	h := mustLock(t.Context(), t, holder)
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	r.awaitWaiter(r.name)
	if err := r.RestartKeepingData(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitWaiter(r.name)
	r.wantHeld(h, "1")
	mustUnlock(t, h)
	mustUnlock(t, awaitHold(t, waiter, woken))
}

// after runs fn in d from now, and closes the channel when fn has returned.
func after(d time.Duration, fn func()) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(done)
		fn()
	})
	return done
}

// syncBuffer is a buffer that a logger may write to while a test reads it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
