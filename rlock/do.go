package rlock

import (
	"context"
	"errors"
	"time"
)

// Do runs fn while it holds the lock: Lock, fn, Unlock. It is what most callers
// need.
//
// fn gets a context that is inside the lock: with it, or with one derived from
// it, Do and Lock of the same name re-enter. The context ends when the lock is
// lost, with ErrLost as its cause, so that work that listens to it stops; see
// Hold.Context for what contexts derived from it tell. It ends with ctx too,
// while the lock stays held until fn returns: a caller that hangs up can cut fn
// in the middle. Where that must not be, use TryLock with ctx and
// Hold.Context(context.WithoutCancel(ctx)).
//
// The lock is always released, also when fn panics or calls runtime.Goexit. Do
// returns fn's error, joined with that of Unlock: ErrLost whenever the lock was
// lost while fn ran, even if fn returned nil. If the lock was not acquired, fn
// does not run, and the error is Lock's. LockError.Op tells the two apart, unless
// fn itself returns the error of another lock: errors.Is and errors.As look
// through that too. A fn that takes locks sets a variable when it begins.
func (l *RLock) Do(ctx context.Context, fn func(context.Context) error, opts ...LockOption) error {
	return l.do(ctx, "Do", limitOf(ctx), fn, opts)
}

// TryDo is Do with the bounded wait of TryLock.
func (l *RLock) TryDo(
	ctx context.Context, wait time.Duration, fn func(context.Context) error, opts ...LockOption,
) error {
	return l.do(ctx, "TryDo", limitOf(ctx).within(wait), fn, opts)
}

func (l *RLock) do(
	ctx context.Context, op string, lim limit, fn func(context.Context) error, opts []LockOption,
) (err error) {
	if fn == nil {
		return &LockError{Op: op, Name: l.Name(), Err: errors.New("rlock: fn is nil: there is nothing to do")}
	}
	h, err := l.lock(ctx, op, lim, opts)
	if err != nil {
		return err
	}
	// Deferred, so that a panic or Goexit in fn releases the lock on its way.
	defer func() {
		unlock := h.Unlock(ctx)
		if told := errors.Is(err, ErrLost) && errors.Is(unlock, ErrLost); unlock != nil && !told {
			err = errors.Join(err, unlock)
		}
	}()
	return fn(h.Context(ctx))
}
