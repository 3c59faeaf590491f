package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// RLock is a re-entrant lock by name, Redisson's RLock: the R stands for
// re-entrant, it is not a read lock. It is a description, not a hold: share it
// freely between goroutines, which then exclude each other. Client.NewRLock
// makes one; the zero value is of no use.
//
// Who owns the lock follows the call chain and not the goroutine: a Lock whose
// ctx carries a live hold of the same client and name (see Hold.Context and Do)
// re-enters it; any other Lock is a fresh owner.
type RLock struct {
	c         *Client
	name, key string
}

// Name returns the lock's name, without Options.KeyPrefix. A nil RLock has none.
func (l *RLock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Lock acquires the lock, waiting for it as long as ctx allows. Those who wait
// in one client take turns in order; they sleep, and do not poll.
//
// It returns the hold, and no error, exactly when the lock is held at that
// time. After an error it holds nothing: what Redis may have granted to an
// unanswered attempt is released in the background and never renewed. Every
// error is a *LockError that matches, with errors.Is:
//
//   - ctx.Err() and context.Cause(ctx), when ctx ended; if Redis had failed
//     before that, its error besides;
//   - the error of Redis: at once for one that does not pass (missing rights,
//     the name in use for another type); the first failure of any kind when
//     ctx has no deadline and the call has not yet waited for a holder;
//   - ErrClosed after Shutdown or Close;
//   - when ctx carries a hold of this lock: ErrLost if that was lost, and
//     ErrInnerHold when a sibling kept the inner hold for all of Options.Lease.
//
// ctx bounds the waiting, not the holding: its end does not release the lock.
func (l *RLock) Lock(ctx context.Context, opts ...LockOption) (*Hold, error) {
	return l.lock(ctx, "Lock", limitOf(ctx), opts)
}

// TryLock acquires the lock if that is possible within wait, which may be
// longer than the lease. With a wait of zero or less it makes one attempt and
// does not queue behind those who wait; that attempt is waited for as long as
// ctx allows, and not longer than a third of the lease.
//
// It returns as Lock does, and besides:
//
//   - ErrNotAcquired when the wait ran out; LockError.RetryAfter is then the
//     TTL that Redis reported;
//   - the error of Redis in place of ErrNotAcquired, when Redis failed last; an
//     attempt that only the end of the wait cut short does not count;
//   - ErrInnerHold when ctx carries a hold of this lock and a sibling kept the
//     inner hold for all of the wait.
func (l *RLock) TryLock(ctx context.Context, wait time.Duration, opts ...LockOption) (*Hold, error) {
	return l.lock(ctx, "TryLock", limitOf(ctx).within(wait), opts)
}

// lock is Lock and TryLock.
func (l *RLock) lock(ctx context.Context, op string, lim limit, opts []LockOption) (*Hold, error) {
	h, err := l.lockWithin(ctx, lim, opts)
	if err == nil {
		return h, nil
	}
	failure := &LockError{Op: op, Name: l.Name(), Err: err}
	if busy, ok := errors.AsType[busyError](err); ok {
		failure.Err, failure.RetryAfter = busy.error, busy.left
	}
	if script.WrongType(err) && !errors.Is(err, ErrLost) && ctx.Err() == nil { // else it may be the cause of ctx
		failure.Err = fmt.Errorf("the key %q holds other data than a lock: give locks names of their own, "+
			"for example by Options.KeyPrefix: %w", l.key, err)
	}
	return nil, failure
}

func (l *RLock) lockWithin(ctx context.Context, lim limit, opts []LockOption) (*Hold, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	t, err := l.c.termsOf(opts)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	outer, err := l.holdFrom(ctx)
	switch {
	case err != nil:
		return nil, err
	case outer != nil:
		return l.reenter(ctx, outer, t, lim)
	case lim.once:
		return l.c.acquireOnce(ctx, l, t, lim)
	}
	return l.c.acquire(ctx, l, t, lim)
}

// check refuses names that Redis cannot carry.
func (l *RLock) check() error {
	switch {
	case l == nil || l.c == nil:
		return errors.New("rlock: this RLock was not made by Client.NewRLock")
	case l.name == "":
		return errors.New("rlock: the lock's name is empty: give it a name, such as \"order:42\"")
	case len(l.key) > maxKeyBytes:
		return fmt.Errorf("rlock: the lock's name has %d bytes: with its prefix it may have %d; use a digest of it",
			len(l.name), maxKeyBytes)
	case l.c.cluster:
		if err := wire.CheckCluster(l.key); err != nil {
			return fmt.Errorf("rlock: %w", err)
		}
	}
	return nil
}
