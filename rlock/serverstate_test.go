package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// ill is a server that will be brought into some state, a client of ours on it,
// and the administrator's connection.
type ill struct {
	srv   *redistest.Server
	rdb   *redis.Client
	admin *redis.Client
	c     *rlock.Client
	logs  *records
}

// newIll starts a server and a client whose end the test waits for: at its end
// there is no key and no channel, whatever state the server was in between.
func newIll(t *testing.T, cfg redistest.Config, opts rlock.Options, hooks ...func(*redis.Options)) *ill {
	t.Helper()
	i := &ill{srv: redistest.New(t, cfg), logs: new(records)}
	i.admin = i.srv.Client(t)
	t.Cleanup(func() {
		if !t.Failed() {
			i.srv.CheckNoKeys(t, "")
			i.srv.CheckNoChannels(t, "*")
		}
	})
	i.rdb = i.srv.Client(t, hooks...)
	opts.Logger = slog.New(i.logs)
	i.c = clientOn(t, i.rdb, opts)
	return i
}

func clientOn(t *testing.T, rdb *redis.Client, opts rlock.Options) *rlock.Client {
	t.Helper()
	c, err := rlock.New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it returns nil
	return c
}

// fastDial makes a refused connection an error at once: by default go-redis
// tries five times.
func fastDial(o *redis.Options) { o.DialerRetries = 1 }

// do executes a command as the administrator.
func (i *ill) do(t *testing.T, args ...any) {
	t.Helper()
	if err := i.admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// lock acquires a lock that must be free.
func (i *ill) lock(t *testing.T, name string, opts ...rlock.LockOption) *rlock.Hold {
	t.Helper()
	h, err := i.c.NewRLock(name).TryLock(t.Context(), 10*time.Second, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// works checks that a lock can be had and given back.
func (i *ill) works(t *testing.T, name string) {
	t.Helper()
	if err := i.lock(t, name).Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// startTrying begins a bounded call that cannot succeed yet. The channel gets
// its error, or that of its Unlock.
func (i *ill) startTrying(t *testing.T) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		h, err := i.c.NewRLock("lock").TryLock(t.Context(), time.Minute)
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	redistest.Eventually(t, 10*time.Second, func() bool { return i.c.Waiting("lock") == 1 }, "it tries")
	return got
}

// records is a slog.Handler that keeps what is logged.
type records struct {
	mu   sync.Mutex
	list []slog.Record
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, record.Clone())
	return nil
}

// that returns the messages of the records of a level or above that hold a text,
// in the message or an attribute.
func (r *records) that(level slog.Level, text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, record := range r.list {
		line := record.Message
		record.Attrs(func(a slog.Attr) bool {
			line += " " + a.String()
			return true
		})
		if record.Level >= level && strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// slack is what a bounded call may take beyond its bound on a busy machine. A
// call that waits for go-redis takes 5 s, its read timeout.
const slack = 2 * time.Second

// atOnce is below every wait that a call must not use up.
const atOnce = 5 * time.Second

// has returns a check for an error reply with this prefix.
func has(prefix string) func(error) bool {
	return func(err error) bool { return redis.HasErrorPrefix(err, prefix) }
}

// is returns a check for this error.
func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// attemptLock makes one call and checks its error: that of the server, of no class but
// the given one, and within a time.
func (i *ill) attemptLock(
	t *testing.T, what, class string, match func(error) bool, atLeast, atMost time.Duration,
	call func(*rlock.RLock) (*rlock.Hold, error),
) {
	t.Helper()
	start := time.Now()
	h, err := call(i.c.NewRLock("lock"))
	took := time.Since(start)
	if h != nil || !match(err) || classesOf(err) != class {
		t.Errorf("%s: a hold %v, error %v of class %q, want the error of Redis and class %q", what, h != nil, err, classesOf(err), class)
	}
	if took < atLeast || took > atMost {
		t.Errorf("%s took %v, want %v to %v (%v)", what, took, atLeast, atMost, err)
	}
}

// refuses checks that every way to lock returns the server's error at once,
// however long it might wait.
func (i *ill) refuses(t *testing.T, match func(error) bool) {
	t.Helper()
	i.failsOnce(t, match)
	i.attemptLock(t, "TryLock(1m)", "", match, 0, atOnce, func(l *rlock.RLock) (*rlock.Hold, error) {
		return l.TryLock(t.Context(), time.Minute)
	})
	i.attemptLock(t, "Lock with a deadline", "", match, 0, atOnce, func(l *rlock.RLock) (*rlock.Hold, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return l.Lock(ctx)
	})
}

// failsOnce checks the calls that return their first failure in any case.
func (i *ill) failsOnce(t *testing.T, match func(error) bool) {
	t.Helper()
	i.attemptLock(t, "TryLock(0)", "", match, 0, atOnce, func(l *rlock.RLock) (*rlock.Hold, error) {
		return l.TryLock(t.Context(), 0)
	})
	i.attemptLock(t, "Lock without a bound", "", match, 0, atOnce, func(l *rlock.RLock) (*rlock.Hold, error) {
		return l.Lock(t.Context())
	})
}

// triesOn checks that bounded calls try until their bound, and then return the
// server's error, not that somebody has the lock. That of a context's end says both.
func (i *ill) triesOn(t *testing.T, match func(error) bool) {
	t.Helper()
	const bound = 500 * time.Millisecond
	i.attemptLock(t, "TryLock(500ms)", "", match, bound*4/5, bound+slack, func(l *rlock.RLock) (*rlock.Hold, error) {
		return l.TryLock(t.Context(), bound)
	})
	i.attemptLock(t, "Lock(500ms)", "deadline", match, bound*4/5, bound+slack, func(l *rlock.RLock) (*rlock.Hold, error) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		return l.Lock(ctx)
	})
}
