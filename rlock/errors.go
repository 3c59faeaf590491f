package rlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// What went wrong, for errors.Is.
var (
	// ErrNotAcquired: another owner has the lock and the wait ran out.
	// LockError.RetryAfter is what is left of that owner's lease.
	ErrNotAcquired = errors.New("lock not acquired: it is held by another owner")

	// ErrNotHeld: the hold has ended, by Unlock or by loss.
	ErrNotHeld = errors.New("lock not held")

	// ErrLost: the lease ran out, or somebody removed the lock, while the hold
	// was open. Another owner may be inside. errors.Is(err, ErrNotHeld) is
	// true for it as well.
	ErrLost error = lostError{}

	// ErrInnerHold: the hold that the context carries has an open inner hold,
	// and siblings take turns.
	ErrInnerHold = errors.New("an inner hold of the same owner is still open")

	// ErrClosed: Shutdown or Close was called on the client.
	ErrClosed = errors.New("client closed")
)

// lostError is the type of ErrLost: a lost lock is not held either.
type lostError struct{}

func (lostError) Error() string { return "lock lost" }

func (lostError) Is(target error) bool { return target == ErrNotHeld }

// LockError is the type of the errors that the methods of RLock and Hold return
// (Hold.Err, which tells a state, aside): which operation on which lock failed,
// and why. Err matches one of the sentinel errors above, or
// the error of the caller's context, or the error of go-redis; errors.Is and
// errors.As look through it.
type LockError struct {
	// Op is the method: "Lock", "TryLock", "Unlock", ... An error of Do itself
	// has the Op "Do" (or "TryDo") when the lock was not acquired and the
	// function did not run, and "Unlock" when it ran.
	Op   string
	Name string // the lock's name, without Options.KeyPrefix

	// RetryAfter is what is left of the other owner's lease, set with
	// ErrNotAcquired, 0 if unknown: how long a dead holder would block. It is no
	// forecast, since a living one releases earlier or renews; in an HTTP
	// Retry-After, a second or two with jitter serves better, capped by this.
	RetryAfter time.Duration

	Err error
}

// busyError is ErrNotAcquired on its way to a LockError. It is a type of its
// own because an error that a caller made, such as the cause of its context, may
// well be a LockError, of another call.
type busyError struct {
	error
	left time.Duration // of the other owner's lease; 0 if unknown
}

// Error says what failed on which lock, and why.
func (e *LockError) Error() string {
	text := fmt.Sprintf("%s %q: %v", e.Op, e.Name, e.Err)
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (its lease ends in %v unless it is renewed)", e.RetryAfter.Round(time.Millisecond))
	}
	return text
}

// Unwrap returns Err.
func (e *LockError) Unwrap() error { return e.Err }

// ended describes a context that ended: both its error and its cause match.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// noReply is the failure of a call that was left behind unanswered. It matches
// os.ErrDeadlineExceeded, as a socket's timeout does, and not
// context.DeadlineExceeded, which stands for the caller's own bound.
func noReply(bound time.Duration) error {
	return fmt.Errorf("no reply from Redis within %v: %w", max(bound, 0).Round(time.Millisecond), os.ErrDeadlineExceeded)
}
