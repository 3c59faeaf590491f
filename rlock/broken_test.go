package rlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/rlock"
)

// processHook sees every command of a go-redis client.
type processHook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (h processHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h processHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

func (h processHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hooked makes a client of the library whose commands hook sees.
func hooked(t *testing.T, s *redistest.Server, hook processHook) *rlock.Client {
	t.Helper()
	rdb := s.Client(t)
	rdb.AddHook(hook)
	c, err := rlock.New(rdb, rlock.Options{KeyPrefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// errgroup and its like cancel a context with the error of one call as its
// cause: another call's LockError must neither be taken for an own one nor
// changed.
func TestALockErrorAsTheCauseOfAContextIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newClient(t, s, rlock.Options{KeyPrefix: redistest.Prefix(t)})
	for _, name := range []string{"a", "b"} {
		h, err := c.NewRLock(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Unlock(t.Context())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, cause := c.NewRLock("a").TryLock(ctx, 0)
	text := cause.Error()
	cancel(cause)
	_, err := c.NewRLock("b").Lock(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("Lock = %v, want the context's error and its cause", err)
	}
	if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.Op != "Lock" || failure.Name != "b" {
		t.Errorf("Lock = %#v, want an error of its own", err)
	}
	if cause.Error() != text {
		t.Errorf("the cause %q has become %q", text, cause)
	}
}

// A grant whose reply is looked at late does not end the hold of whoever got the
// lock after it.
func TestAnOvertakenGrantDoesNotEndTheLaterHold(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	var armed atomic.Bool
	granted, look := make(chan struct{}), make(chan struct{})
	c := hooked(t, s, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 1 && args[1] == script.AcquireScript.SHA() && err == nil &&
			armed.CompareAndSwap(true, false) {
			close(granted)
			<-look
		}
		return err
	})
	l := c.NewRLock("a")
	h, err := l.Lock(t.Context()) // the server knows the script from here on
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	overtaken := make(chan error, 1)
	go func() {
		_, err := l.TryLock(t.Context(), 0)
		overtaken <- err
	}()
	<-granted
	// The grants are told apart by the server's clock, which counts milliseconds.
	<-time.After(5 * time.Millisecond)
	if freed, err := l.ForceUnlock(t.Context()); err != nil || !freed {
		t.Fatal(freed, err)
	}
	later, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	close(look)
	if err := <-overtaken; err == nil {
		t.Error("a lock that somebody else has was acquired")
	}
	if err := later.Err(); err != nil {
		t.Errorf("the holder by Redis' record was told: %v", err)
	}
	if err := later.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A context may have a deadline and never end: the wait ends by the deadline.
type endless struct {
	context.Context //nolint:containedctx // it is a context

	deadline time.Time
}

func (e endless) Deadline() (time.Time, bool) { return e.deadline, true }

func TestAContextThatOutlivesItsDeadlineDoesNotSpin(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	var commands atomic.Int64
	c := hooked(t, s, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		commands.Add(1)
		return next(ctx, cmd)
	})
	h, err := c.NewRLock("busy").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Unlock(t.Context())
	before := commands.Load()
	_, err = c.NewRLock("busy").Lock(endless{t.Context(), time.Now().Add(50 * time.Millisecond)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock = %v, want context.DeadlineExceeded", err)
	}
	if sent := commands.Load() - before; sent > 10 {
		t.Errorf("%d commands for a wait of 50 ms", sent)
	}
}

// A sibling that waits for its turn learns of the loss of the hold, also when
// its context was detached from it.
func TestASiblingThatWaitsIsToldOfTheLoss(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newClient(t, s, rlock.Options{KeyPrefix: redistest.Prefix(t)})
	l := c.NewRLock("a")
	outer, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	detached := context.WithoutCancel(outer.Context(t.Context()))
	inner, err := l.Lock(detached)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := l.Lock(detached)
		told <- err
	}()
	if _, err := l.ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, rlock.ErrLost) {
		t.Errorf("the sibling's Lock = %v, want ErrLost", err)
	}
	for _, h := range []*rlock.Hold{inner, outer} {
		if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
	}
}

// Contexts that can end with the hold alone are not kept until it ends.
func TestALongHoldDoesNotCollectContexts(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	c := newClient(t, s, rlock.Options{KeyPrefix: redistest.Prefix(t)})
	h, err := c.NewRLock("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	last := h.Context(context.WithValue(context.Background(), key{}, "value"))
	for range 1000 {
		ended, cancel := context.WithCancel(h.Context(context.WithoutCancel(last)))
		h.Context(ended)
		cancel()
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return rlock.ContextsOf(h) <= 1 }, "no contexts are kept")
	if last.Value(key{}) != "value" {
		t.Error("the parent's value was lost")
	}
	derived, cancel := context.WithCancel(last)
	defer cancel()
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-derived.Done()
	if !errors.Is(context.Cause(derived), rlock.ErrNotHeld) || !errors.Is(context.Cause(last), rlock.ErrNotHeld) {
		t.Errorf("causes %v and %v, want ErrNotHeld", context.Cause(derived), context.Cause(last))
	}
}

// A re-entry whose reply was lost, on a connection that hangs for ever, blocks
// neither the next re-entry nor Unlock; and nothing is swept twice.
func TestAFailedReentryOnAHangingConnectionBlocksNobody(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, redistest.Config{})
	proxy := faultproxy.New(t, s.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := rlock.New(rdb, rlock.Options{UnlockTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.KillConnections(); _ = c.Close() })
	l := c.NewRLock("a")
	h, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proxy.On(faultproxy.Script(script.AcquireScript.SHA()), faultproxy.Nth(1)).SwallowReply()
	lowering := proxy.On(faultproxy.Script(script.ReleaseScript.SHA()), faultproxy.Nth(1)).SwallowReply()
	short, cancel := context.WithTimeout(h.Context(t.Context()), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the re-entry whose reply is lost: %v", err)
	}
	<-lowering.Fired()
	inner, err := l.TryLock(h.Context(t.Context()), 5*time.Second)
	if err != nil {
		t.Fatalf("a re-entry on a working network: %v", err)
	}
	if err := inner.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of the inner hold: %v", err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return c.Names() == 0 }, "the client forgets the name")
}

// The cause of one caller's context, here the refusal of another lock, is not
// taken for a refusal of the unlock channel: the next head subscribes and is
// woken by the message, not by its recheck after seconds.
func TestTheCauseOfAContextIsNoRefusalOfTheChannel(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	proxy := faultproxy.New(t, s.Addr())
	prefix := redistest.Prefix(t)
	holder := newClient(t, s, rlock.Options{KeyPrefix: prefix})
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := rlock.New(rdb, rlock.Options{KeyPrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := rdb.Set(t.Context(), prefix+"other", "data", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	h, err := holder.NewRLock("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	subscribing := proxy.On(faultproxy.Cmd("SUBSCRIBE"), faultproxy.Nth(1)).Hold()
	ctx, cancel := context.WithCancelCause(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.NewRLock("a").Lock(ctx)
		first <- err
	}()
	<-subscribing.Fired()
	go func() { second <- c.NewRLock("a").Do(t.Context(), func(context.Context) error { return nil }) }()
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Waiting("a") == 2 }, "two goroutines wait")
	_, other := c.NewRLock("other").TryLock(t.Context(), 0)
	cancel(other)
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first waiter's Lock = %v", err)
	}
	subscribing.Release()
	redistest.Eventually(t, 3*time.Second, func() bool { return c.Subscribed("a") }, "the second waiter subscribes")
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := rdb.Del(t.Context(), prefix+"other").Err(); err != nil {
		t.Fatal(err)
	}
}

// A lock that is released in Redis and granted again in the same millisecond,
// before the release's answer has been looked at, is recorded all the same:
// Shutdown waits for it.
func TestAGrantInTheSameMillisecondIsRecorded(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	shown := 0
	for range 20 {
		var c *rlock.Client
		var next *rlock.Hold
		var once atomic.Bool
		c = hooked(t, s, func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
			err := send(ctx, cmd)
			if args := cmd.Args(); len(args) > 2 && args[1] == script.ReleaseScript.SHA() && err == nil &&
				once.CompareAndSwap(false, true) {
				next, _ = c.NewRLock("a").TryLock(ctx, 0, rlock.WithLease(20*time.Second))
			}
			return err
		})
		h, err := c.NewRLock("a").TryLock(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if next == nil {
			continue // the server did not know the script yet
		}
		shown++
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Shutdown(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown with an open hold = %v", err)
		}
		if err := c.Close(); err != nil || !errors.Is(next.Err(), rlock.ErrLost) {
			t.Errorf("after Close (%v) the open hold's Err is %v", err, next.Err())
		}
		if err := next.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock after Close = %v", err)
		}
	}
	if shown == 0 {
		t.Error("no lock was granted while a release was being looked at: nothing was shown")
	}
}
