package watchdog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

// server is a renew function that records its calls and answers by a script. It is used in bubbles, where its time is
// exact.
type server struct {
	began time.Time

	mu    sync.Mutex
	calls []call
	// answer gives the outcomes of the n-th call (from 0) and may block. nil: all are renewed at once.
	answer func(ctx context.Context, n int, c call) []watchdog.Outcome
}

// call is one call of renew.
type call struct {
	at       time.Duration // since the server began
	deadline time.Duration // of its context, since the server began
	group    string
	keys     []string
}

func (s *server) renew(ctx context.Context, group string, keys []string) []watchdog.Outcome {
	deadline, _ := ctx.Deadline()
	c := call{time.Since(s.began), deadline.Sub(s.began), group, keys}
	s.mu.Lock()
	n, answer := len(s.calls), s.answer
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	if answer == nil {
		return all(watchdog.Renewed, keys)
	}
	return answer(ctx, n, c)
}

func all(o watchdog.Outcome, keys []string) []watchdog.Outcome {
	return slices.Repeat([]watchdog.Outcome{o}, len(keys))
}

func (s *server) recorded() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// answerWith changes the answers from now on.
func (s *server) answerWith(answer func(context.Context, int, call) []watchdog.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// script answers the n-th call with the n-th reply, and all later ones with the last.
func script(replies ...reply) func(context.Context, int, call) []watchdog.Outcome {
	return func(_ context.Context, n int, c call) []watchdog.Outcome {
		r := replies[min(n, len(replies)-1)]
		<-time.After(r.after)
		return all(r.outcome, c.keys)
	}
}

type reply struct {
	outcome watchdog.Outcome
	after   time.Duration
}

// instants returns when the calls that contain key began.
func (s *server) instants(key string) []time.Duration {
	var at []time.Duration
	for _, c := range s.recorded() {
		if slices.Contains(c.keys, key) {
			at = append(at, c.at)
		}
	}
	return at
}

// rig is a watchdog in a bubble with its server and the losses that it told.
type rig struct {
	*watchdog.Watchdog[string]
	t      *testing.T
	server *server

	mu   sync.Mutex
	told []told
}

type told struct {
	key string
	err error
	at  time.Duration
}

func newRig(t *testing.T, o watchdog.Options[string]) *rig {
	t.Helper()
	r := &rig{t: t, server: &server{began: time.Now()}}
	o.OnLost = func(key string, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, told{key, err, time.Since(r.server.began)})
	}
	w, err := watchdog.New(r.server.renew, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Watchdog = w
	return r
}

// keep keeps a lease of group "g" that was sent just now.
func (r *rig) keep(key string, lease time.Duration) *watchdog.Lease[string] {
	return r.Keep(key, "g", lease, time.Now())
}

// until lets the bubble's clock run until d after the server began, and all that is due then happen.
func (r *rig) until(d time.Duration) {
	<-time.After(time.Until(r.server.began.Add(d)))
	synctest.Wait()
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Errorf("Close = %v", err)
	}
}

// losses returns what OnLost was told so far.
func (r *rig) losses() []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

// wantIdle checks that neither a timer nor a goroutine is left.
func (r *rig) wantIdle() {
	r.t.Helper()
	ended, cancel := context.WithCancel(r.t.Context())
	cancel()
	if err := r.Wait(ended); err != nil {
		r.t.Errorf("Wait: %v; want nil: nothing is kept and nothing runs", err)
	}
	if r.TakeTimer() {
		r.t.Error("a timer is armed although nothing is kept")
	}
}

func (r *rig) wantInstants(key string, want ...time.Duration) {
	r.t.Helper()
	if got := r.server.instants(key); !slices.Equal(got, want) {
		r.t.Errorf("renewals of %q at %v; want %v", key, got, want)
	}
}

func (r *rig) wantLosses(want ...told) {
	r.t.Helper()
	if got := r.losses(); !slices.Equal(got, want) {
		r.t.Errorf("OnLost was told %v; want %v", got, want)
	}
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wantErr checks Err and that Lost agrees with it.
func wantErr(t *testing.T, l *watchdog.Lease[string], want error) {
	t.Helper()
	got := l.Err()
	if !errors.Is(got, want) {
		t.Errorf("Err() = %v; want %v", got, want)
	}
	if closed := isClosed(l.Lost()); closed != (want != nil) {
		t.Errorf("Lost() is closed: %t, although Err() = %v", closed, got)
	}
}

// hang never answers: it returns at the end of the test only.
func hang(t *testing.T) func(context.Context, int, call) []watchdog.Outcome {
	t.Helper()
	return func(context.Context, int, call) []watchdog.Outcome {
		<-t.Context().Done()
		return nil
	}
}
