//go:build scenarios

package scenarios_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// outcome is what a Lock in the background came to, and when.
type outcome struct {
	hold *rlock.Hold
	err  error
	at   time.Time
}

// begin runs a Lock in the background and records its holder as inside.
func (r *rig) begin(lock func() (*rlock.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		h, err := lock()
		at := time.Now()
		if err == nil {
			r.enter(h)
		}
		done <- outcome{h, err, at}
	}()
	return done
}

// beginLock is begin for a Lock that is bounded by the test alone.
func (r *rig) beginLock(lock *rlock.RLock) <-chan outcome {
	return r.begin(func() (*rlock.Hold, error) { return lock.Lock(r.t.Context()) })
}

// await receives from a channel that has to bring something, or to be closed,
// within a bound.
func await[T any](t *testing.T, ch <-chan T, within time.Duration, what string) T {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case got := <-ch:
		return got
	case <-limit.C:
		t.Fatalf("not within %v: %s", within, what)
		panic("unreachable")
	}
}

// awaitHold returns what a Lock in the background got, which must be a hold.
func awaitHold(t *testing.T, ch <-chan outcome, within time.Duration) outcome {
	t.Helper()
	got := await(t, ch, within, "a waiter gets the lock")
	if got.err != nil {
		t.Fatalf("waiting for the lock: %v", got.err)
	}
	return got
}

// pass lets time pass that the case asks for: work under a lock, or a quiet
// time. It is nothing to wait for a condition with.
func pass(d time.Duration) { <-time.After(d) }

// isClosed reports whether a channel is closed or has something to give.
func isClosed[T any](ch <-chan T) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// wantIs checks an error against everything that it has to match.
func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want one that matches %q", err, target)
		}
	}
}

// wantNot checks an error against what it must not be mistaken for.
func wantNot(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("got %v, which must not match %q", err, target)
		}
	}
}

// wantText checks that an error says something in so many words.
func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want an error that says %q", err, text)
	}
}
