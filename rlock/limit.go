package rlock

import (
	"context"
	"math/rand/v2"
	"time"
)

// limit is how long an acquisition may take.
type limit struct {
	once  bool      // one attempt, no waiting
	start time.Time // when it began
	wait  time.Time // when the wait given to TryLock ends; zero for Lock
	end   time.Time // the earlier of wait and the context's deadline; zero for none
}

func limitOf(ctx context.Context) limit {
	l := limit{start: time.Now()}
	if deadline, ok := ctx.Deadline(); ok {
		l.end = deadline
	}
	return l
}

// within adds a wait: none at all if it is not positive.
func (l limit) within(wait time.Duration) limit {
	if wait <= 0 {
		l.once = true
		return l
	}
	l.wait = l.start.Add(wait)
	if l.end.IsZero() || l.wait.Before(l.end) {
		l.end = l.wait
	}
	return l
}

func (l limit) bounded() bool { return !l.end.IsZero() }

// over reports whether the wait has run out. A context's deadline is the
// context's to tell.
func (l limit) over(now time.Time) bool { return !l.wait.IsZero() && !now.Before(l.wait) }

// send returns how long one copy of a command sent now is waited for: a third
// of the lease, and a third of the whole wait, so that a lost reply leaves time
// for another attempt, and never past the end. (Where the lease is longer than
// Options.Lease, callers give that: nobody should wait 20 minutes for a reply
// because he wants the lock for an hour.)
func (l limit) send(now time.Time, lease time.Duration) time.Duration {
	bound := max(lease/3, min(lease, minSend))
	if l.bounded() {
		third := max(l.end.Sub(l.start)/3, minSend)
		bound = min(bound, third, l.end.Sub(now))
	}
	return bound
}

// lastLook returns when the last attempt of a bounded wait is due: early enough
// for its reply to come in time, by the round trip that was seen last.
func (l limit) lastLook(roundTrip time.Duration) time.Time {
	margin := min(max(2*roundTrip, time.Millisecond), l.end.Sub(l.start)/4)
	return l.end.Add(-margin)
}

// deadlinePassed returns the error of a context whose deadline has passed. Its
// own timer may be a moment late; a context of the caller's making may never end.
func deadlinePassed(ctx context.Context) error {
	if err := pause(ctx, lateTimer); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// lateTimer is how long the end of a context is waited for after its deadline.
const lateTimer = 10 * time.Millisecond

// Pauses between attempts that failed.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// backoff returns the pause after the n-th failure in a row, n from 0: doubled
// each time, and spread so that clients that failed together do not come back
// together.
func backoff(n int) time.Duration {
	pause := min(firstPause<<min(n, 10), lastPause)
	return pause/2 + rand.N(pause/2+1)
}

// pause waits for d. It returns earlier, with the context's error, when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}
