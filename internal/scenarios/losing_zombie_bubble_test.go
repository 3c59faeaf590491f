//go:build scenarios

package scenarios_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/rlock"
)

// Holds, failed attempts and waits that ran out leave no goroutine, without any
// Close: the bubble fails when one is left at its end. The server is miniredis,
// which proves nothing about Redis and serves well for this.
func TestB142NothingIsLeftWithoutClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := embedded.NewInBubble()
		defer s.Close()
		newLock := func() *rlock.RLock {
			c, err := rlock.New(s.Client(), rlock.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return c.NewRLock("lock")
		}
		a, b := newLock(), newLock()
		for range 20 {
			h, err := a.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, wait := range []time.Duration{0, time.Second} {
				for _, lock := range []*rlock.RLock{a, b} {
					if _, err := lock.TryLock(t.Context(), wait); !errors.Is(err, rlock.ErrNotAcquired) {
						t.Fatalf("TryLock within %v: %v", wait, err)
					}
				}
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Lock(t.Context(), rlock.WithLease(time.Second)); err != nil { // forgotten
				t.Fatal(err)
			}
		}
		pass(time.Second) // a subscription lingers for half of it
	})
}
