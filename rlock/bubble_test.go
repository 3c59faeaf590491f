package rlock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/rlock"
)

// rig is a Redis server inside a testing/synctest bubble. Its clock is the
// bubble's, which moves only while every goroutine of the bubble waits: what
// takes no waiting takes no time, so tests compare instants for equality.
//
// When a test ends, the bubble checks that no goroutine is left in it.
type rig struct {
	*testing.T
	server *embedded.Server
	admin  *redis.Client // past the networks that tests break
	start  time.Time
}

// bubble runs body in a bubble with a server.
func bubble(t *testing.T, body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, server: embedded.NewInBubble(), start: time.Now()}
		t.Cleanup(r.server.Close)
		r.admin = r.server.Client()
		for _, s := range []*script.Script{
			script.AcquireScript, script.ReleaseScript, script.RenewScript, script.InfoScript,
		} {
			// Known to the server, so that each call is one command.
			r.must(r.admin.ScriptLoad(t.Context(), s.Source()).Err())
		}
		body(r)
	})
}

// node is a Client with a go-redis client and a network of its own.
type node struct {
	*rlock.Client
	net *network
}

// node makes a client of the library.
func (r *rig) node(opts rlock.Options, hooks ...func(*redis.Options)) *node {
	r.Helper()
	n := &node{net: newNetwork(r)}
	rdb := r.server.Client(append([]func(*redis.Options){func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return n.net.connect(ctx) }
		o.PoolSize, o.DialerRetries = 64, 1
	}}, hooks...)...)
	var err error
	n.Client, err = rlock.New(rdb, opts)
	r.must(err)
	r.Cleanup(func() {
		n.net.heal()
		r.must(n.Close())
		_ = rdb.Close() // only a connection that the test cut can fail to close
		n.net.close()
	})
	return n
}

// never lets go-redis wait for a reply as long as the connection is there.
func never(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 }

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// now returns the time since the start of the test.
func (r *rig) now() time.Duration { return time.Since(r.start) }

// pass lets d go by, and what is due then happen. It arms no timer that is due
// at once: two of those at a time in one bubble crash the race detector of Go
// 1.26 (golang/go issue 78156).
func (r *rig) pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
	synctest.Wait()
}

// passTo lets the time pass up to an instant since the start of the test.
func (r *rig) passTo(at time.Duration) {
	r.Helper()
	if at < r.now() {
		r.Fatalf("it is %v already, past %v", r.now(), at)
	}
	r.pass(at - r.now())
}

// at checks the time since the start of the test.
func (r *rig) at(want time.Duration) {
	r.Helper()
	if got := r.now(); got != want {
		r.Errorf("it is %v, want %v", got, want)
	}
}

// between checks the time since the start of the test, both bounds included.
func (r *rig) between(low, high time.Duration) {
	r.Helper()
	if got := r.now(); got < low || got > high {
		r.Errorf("it is %v, want %v to %v", got, low, high)
	}
}

// fails checks that err matches all of want, and none of the other ways in
// which a method of a lock fails.
func (r *rig) fails(err error, want ...error) {
	r.Helper()
	if err == nil {
		r.Errorf("no error, want %v", want)
		return
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			r.Errorf("error %q, want one that matches %q", err, w)
		}
	}
	for _, kind := range []error{
		rlock.ErrNotAcquired, rlock.ErrNotHeld, rlock.ErrLost, rlock.ErrInnerHold, rlock.ErrClosed,
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded,
	} {
		if errors.Is(err, kind) && !matchesAny(want, kind) {
			r.Errorf("error %q matches %q, want only %q", err, kind, want)
		}
	}
	if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.Op == "" || failure.Name == "" {
		r.Errorf("error %q is no LockError with operation and name", err)
	}
}

// matchesAny reports whether an error that matches all of want has to match
// kind: a lost lock is not held either.
func matchesAny(want []error, kind error) bool {
	for _, w := range want {
		if errors.Is(w, kind) {
			return true
		}
	}
	return false
}

// lock acquires and fails the test if it cannot.
func (r *rig) lock(l *rlock.RLock, opts ...rlock.LockOption) *rlock.Hold {
	r.Helper()
	return r.lockIn(r.Context(), l, opts...)
}

func (r *rig) lockIn(ctx context.Context, l *rlock.RLock, opts ...rlock.LockOption) *rlock.Hold {
	r.Helper()
	h, err := l.Lock(ctx, opts...)
	r.must(err)
	return h
}

func (r *rig) unlock(h *rlock.Hold) {
	r.Helper()
	r.must(h.Unlock(r.Context()))
}

// occupy gives a lock to an owner that is no client, never renews and never
// releases.
func (r *rig) occupy(key string, ttl time.Duration) {
	r.Helper()
	r.must(r.admin.HSet(r.Context(), key, "somebody:1", 1).Err())
	r.must(r.admin.PExpire(r.Context(), key, ttl).Err())
}

// vanish removes a key without a message.
func (r *rig) vanish(key string) {
	r.Helper()
	r.must(r.admin.Del(r.Context(), key).Err())
}

// ttl returns what a key has left in Redis, 0 if it is not there.
func (r *rig) ttl(key string) time.Duration {
	r.Helper()
	ttl, err := r.admin.PTTL(r.Context(), key).Result()
	r.must(err)
	return max(ttl, 0)
}

// owner returns who has the lock a in Redis, "" if nobody.
func (r *rig) owner() string {
	r.Helper()
	fields, err := r.admin.HKeys(r.Context(), "a").Result()
	r.must(err)
	return strings.Join(fields, " and ")
}

// validUntil returns Hold.ValidUntil since the start of the test.
func (r *rig) validUntil(h *rlock.Hold) time.Duration { return h.ValidUntil().Sub(r.start) }

// wantValid checks until when a hold is valid, and that Redis keeps the key
// exactly as long, as it does when no time is lost on the network.
func (r *rig) wantValid(h *rlock.Hold, want time.Duration) {
	r.Helper()
	if err := h.Err(); err != nil {
		r.Errorf("at %v the hold is over: %v", r.now(), err)
	}
	if got := r.validUntil(h); got != want {
		r.Errorf("at %v the hold is valid until %v, want %v", r.now(), got, want)
	}
	if got := r.now() + r.ttl(h.Name()); got != want {
		r.Errorf("at %v Redis keeps the lock until %v, want %v", r.now(), got, want)
	}
}

// outcome is how a goroutine's Lock ended.
type outcome struct {
	hold *rlock.Hold
	err  error
	at   time.Duration
}

// goLock calls lock in a goroutine of its own and returns its outcome later.
func (r *rig) goLock(lock func() (*rlock.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		h, err := lock()
		done <- outcome{h, err, r.now()}
	}()
	return done
}

// waiting starts a Lock that has to wait, and returns when it sleeps.
func (r *rig) waiting(l *rlock.RLock) <-chan outcome {
	r.Helper()
	done := r.goLock(func() (*rlock.Hold, error) { return l.Lock(r.Context()) })
	synctest.Wait()
	if len(done) > 0 {
		o := <-done
		r.Fatalf("Lock does not wait: %v", o.err)
	}
	return done
}

// isClosed reports whether a channel is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

var (
	bubbleNumber  = regexp.MustCompile(`synctest bubble \d+`)
	libraryFrames = regexp.MustCompile(`(?m)^github\.com/latchkey-go/latchkey/(rlock|watchdog|pubsub)[.(]`)
)

// goroutines returns the goroutines of this bubble that the library started:
// those with a function of the library on their stack and none of the tests.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := strings.Split(string(buf), "\n\n")
	own := bubbleNumber.FindString(all[0]) // the caller comes first
	var ours []string
	for _, g := range all {
		header, _, _ := strings.Cut(g, "\n")
		if bubbleNumber.FindString(header) == own && libraryFrames.MatchString(g) && !strings.Contains(g, "rlock_test.") {
			ours = append(ours, g)
		}
	}
	return ours
}

// idle checks that the library does nothing any more: it has no goroutine and
// no connection for subscriptions, and sends no command for an hour.
func (r *rig) idle(nodes ...*node) {
	r.Helper()
	synctest.Wait()
	for _, n := range nodes {
		n.net.forget()
	}
	if left := goroutines(); len(left) > 0 {
		r.Errorf("at %v %d goroutines are left:\n%s", r.now(), len(left), strings.Join(left, "\n\n"))
	}
	r.pass(time.Hour)
	for _, n := range nodes {
		if sent := n.net.sent(); len(sent) > 0 {
			r.Errorf("commands of an idle client: %v", sent)
		}
		if subs := n.net.subscribers(); subs != 0 {
			r.Errorf("%d connections of an idle client have sent SUBSCRIBE", subs)
		}
	}
}
