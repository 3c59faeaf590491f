package rlocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

// compact is the code under test: an hour of work under a lock, which stops when
// the lock is lost.
func compact(ctx context.Context, locks *rlock.Client) error {
	return locks.NewRLock("compaction").Do(ctx, func(ctx context.Context) error {
		select {
		case <-time.After(time.Hour): // stands for the work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// checkCompactionStops is a test in a bubble: minutes go by in no time.
func checkCompactionStops(t *testing.T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kit := rlocktest.New(t, rlock.Options{}) // inside the bubble
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- compact(t.Context(), kit.Client()) }()

		// The watchdog keeps the lock for longer than its lease of 30 s.
		<-time.After(2*time.Minute + time.Second)
		synctest.Wait()
		kit.AssertHeld("compaction")

		// Redis goes away. The lock was renewed last at 2:00, so it is lost, and
		// the work stops, at 2:30.
		kit.Fail(errors.New("connection refused"))
		err := <-done
		if spent := time.Since(start); !errors.Is(err, rlock.ErrLost) || spent != 150*time.Second {
			t.Errorf("compact returns %v after %v, want ErrLost after 2m30s", err, spent)
		}
		kit.AssertFree("compaction")
	})
}

// In a testing/synctest bubble, what takes long takes no time, and happens at
// the same instants in every run.
func Example_bubble() {
	// Such a test is a function of a *testing.T, as any other:
	//
	//	func TestCompactionStops(t *testing.T) { synctest.Test(t, ...) }
	_ = checkCompactionStops
}
