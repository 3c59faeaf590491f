package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// op is one way to use a lock.
type op struct {
	name string
	call func(context.Context, *rlock.RLock, ...rlock.LockOption) error
}

// acquisitions are the ways to acquire a lock. What they get is given back.
func acquisitions() []op {
	end := func(h *rlock.Hold, err error) error {
		if h != nil {
			return errors.Join(errors.New("a hold was given out"), err, h.Unlock(context.Background()))
		}
		return err
	}
	nothing := func(context.Context) error { return errors.New("fn ran") }
	return []op{
		{"Lock", func(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) error {
			return end(l.Lock(ctx, opts...))
		}},
		{"TryLock", func(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) error {
			return end(l.TryLock(ctx, 0, opts...))
		}},
		{"TryLock", func(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) error {
			return end(l.TryLock(ctx, time.Minute, opts...))
		}},
		{"Do", func(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) error {
			return l.Do(ctx, nothing, opts...)
		}},
		{"TryDo", func(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) error {
			return l.TryDo(ctx, time.Minute, nothing, opts...)
		}},
	}
}

// questions are the uses of a lock that acquire nothing.
func questions() []op {
	return []op{
		{"Info", func(ctx context.Context, l *rlock.RLock, _ ...rlock.LockOption) error {
			info, err := l.Info(ctx)
			if info != (rlock.Info{}) {
				return errors.Join(errors.New("something is known"), err)
			}
			return err
		}},
		{"ForceUnlock", func(ctx context.Context, l *rlock.RLock, _ ...rlock.LockOption) error {
			freed, err := l.ForceUnlock(ctx)
			if freed {
				return errors.Join(errors.New("something was freed"), err)
			}
			return err
		}},
	}
}

// checkLockError checks what is common to the errors of a lock's methods.
func checkLockError(t *testing.T, what string, err error, op, name, class string) {
	t.Helper()
	failure, ok := errors.AsType[*rlock.LockError](err)
	if !ok {
		t.Errorf("%s: %s: %v, want a *LockError", what, op, err)
		return
	}
	if failure.Op != op || failure.Name != name || failure.RetryAfter != 0 {
		t.Errorf("%s: %+v, want the method %s and the name %q", what, failure, op, name)
	}
	if got := classesOf(err); got != class {
		t.Errorf("%s: %s: %v is of class %q, want %q", what, op, err, got, class)
	}
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	c := newUnused(t, rlock.Options{KeyPrefix: "prefix:"})
	for _, bad := range []struct {
		name string
		says []string
	}{
		{"", []string{"name is empty", "give it a name"}},
		{strings.Repeat("n", 4090), []string{"4090 bytes", "4096", "digest"}},
	} {
		for _, op := range append(acquisitions(), questions()...) {
			err := op.call(t.Context(), c.NewRLock(bad.name))
			checkText(t, op.name, err, bad.says...)
			checkLockError(t, "a bad name", err, op.name, bad.name, "")
		}
	}
}

// TestRLockFromNowhere: one that New did not make is refused, and does not panic.
func TestRLockFromNowhere(t *testing.T) {
	t.Parallel()
	for what, l := range map[string]*rlock.RLock{"the zero RLock": new(rlock.RLock), "a nil RLock": nil} {
		for _, op := range append(acquisitions(), questions()...) {
			t.Run(what+" "+op.name, func(t *testing.T) {
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("panic: %v", r)
					}
				}()
				err := op.call(t.Context(), l)
				checkText(t, what, err, "not made by Client.NewRLock")
				checkLockError(t, what, err, op.name, "", "")
			})
		}
	}
	if h, ok := new(rlock.RLock).HoldFrom(t.Context()); h != nil || ok {
		t.Error("the zero RLock found a hold")
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	l := newUnused(t, rlock.Options{}).NewRLock("lock")
	for _, c := range []struct {
		name string
		opts []rlock.LockOption
		says []string
	}{
		{"WithLease(0)", []rlock.LockOption{rlock.WithLease(0)}, []string{"WithLease(0s)", "leave WithLease out to use the watchdog"}},
		{"WithLease(-1)", []rlock.LockOption{rlock.WithLease(-1)}, []string{"WithLease(-1ns)", "leave WithLease out to use the watchdog"}},
		{"Redisson's -1 ms", []rlock.LockOption{rlock.WithLease(-time.Millisecond)}, []string{"leave WithLease out to use the watchdog"}},
		{"a fixed lease under 1 ms", []rlock.LockOption{rlock.WithLease(999 * time.Microsecond)}, []string{"WithLease", "999µs", "at least 1ms"}},
		{"an endless fixed lease", []rlock.LockOption{rlock.WithLease(tooLong)}, []string{"WithLease", "at most"}},
		{"WithWatchdog(0)", []rlock.LockOption{rlock.WithWatchdog(0)}, []string{"WithWatchdog", "0s", "at least 1ms"}},
		{"WithWatchdog(-1)", []rlock.LockOption{rlock.WithWatchdog(-1)}, []string{"WithWatchdog", "-1ns", "at least 1ms"}},
		{"an endless watchdog lease", []rlock.LockOption{rlock.WithWatchdog(tooLong)}, []string{"WithWatchdog", "at most"}},
		{
			"both",
			[]rlock.LockOption{rlock.WithLease(time.Second), rlock.WithWatchdog(time.Second)},
			[]string{"WithLease and WithWatchdog given together", "give one of them"},
		},
		{
			"both, the other way round",
			[]rlock.LockOption{rlock.WithWatchdog(time.Second), nil, rlock.WithLease(time.Second)},
			[]string{"WithWatchdog and WithLease given together", "give one of them"},
		},
		{
			"one twice",
			[]rlock.LockOption{rlock.WithLease(time.Second), rlock.WithLease(time.Minute)},
			[]string{"WithLease", "one lease"},
		},
		{
			"a bad one and a good one",
			[]rlock.LockOption{rlock.WithWatchdog(-1), rlock.WithWatchdog(time.Second)},
			[]string{"WithWatchdog is -1ns"},
		},
	} {
		for _, op := range acquisitions() {
			err := op.call(t.Context(), l, c.opts...)
			checkText(t, c.name, err, c.says...)
			checkLockError(t, c.name, err, op.name, "lock", "")
		}
	}
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	l := newUnused(t, rlock.Options{}).NewRLock("lock")
	err := l.Do(t.Context(), nil)
	checkText(t, "Do", err, "fn is nil")
	checkLockError(t, "no fn", err, "Do", "lock", "")
	err = l.TryDo(t.Context(), time.Minute, nil)
	checkText(t, "TryDo", err, "fn is nil")
	checkLockError(t, "no fn", err, "TryDo", "lock", "")
}

// TestEndedContext: nothing is sent for a caller that has left already.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	l := newUnused(t, rlock.Options{}).NewRLock("lock")
	why := errors.New("closing time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, op := range append(acquisitions(), questions()...) {
		err := op.call(ctx, l)
		checkLockError(t, "a cancelled context", err, op.name, "lock", "cancelled")
		if !errors.Is(err, why) {
			t.Errorf("%s: %v does not match the cause", op.name, err)
		}
	}
}

// TestEndedClient: after Close and after Shutdown nothing new begins.
func TestEndedClient(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*rlock.Client) error{
		"Close":             (*rlock.Client).Close,
		"Shutdown":          func(c *rlock.Client) error { return c.Shutdown(t.Context()) },
		"Close, then again": func(c *rlock.Client) error { return errors.Join(c.Close(), c.Close(), c.Shutdown(t.Context())) },
	} {
		c := newUnused(t, rlock.Options{})
		before := c.NewRLock("lock")
		if err := end(c); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, l := range []*rlock.RLock{before, c.NewRLock("lock")} {
			for _, op := range append(acquisitions(), questions()...) {
				err := op.call(t.Context(), l)
				checkLockError(t, "after "+what, err, op.name, "lock", "closed")
			}
		}
	}
}

// TestBadRenewal: a hold that is asked for nonsense stays as it was, and Redis
// is not asked.
func TestBadRenewal(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	c, err := rlock.New(srv.Client(t), rlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it returns nil
	h, err := c.NewRLock("lock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until := h.ValidUntil()
	sent := srv.Commands(t, func() {
		for _, lease := range []time.Duration{0, -1, 999 * time.Microsecond, tooLong} {
			err := h.Renew(t.Context(), lease)
			checkText(t, "Renew", err, "Renew", lease.String(), "lease is at")
			checkLockError(t, "a bad lease", err, "Renew", "lock", "")
		}
	})
	if sent["evalsha"] != 0 || sent["eval"] != 0 || h.Err() != nil || !h.ValidUntil().Equal(until) {
		t.Errorf("sent %v; the hold's error is %v", sent, h.Err())
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	srv.CheckNoKeys(t, "")
}

// TestLongestName: the longest name that is accepted is one that Redis accepts,
// with its channel.
func TestLongestName(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	c, err := rlock.New(srv.Client(t), rlock.Options{KeyPrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it returns nil
	l := c.NewRLock(strings.Repeat("n", 4096-len(prefix)))
	if err := l.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	srv.CheckNoKeys(t, prefix)
}
