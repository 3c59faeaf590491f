package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

var (
	errSoldOut = errors.New("not enough in stock")
	errNoItem  = errors.New("no such item")
	// errUnchanged goes with errors after which the stock is as it was: the request
	// may be repeated.
	errUnchanged = errors.New("nothing was changed")
)

// Stock keeps how many pieces of each item are left. The numbers are in Redis
// and are changed by a GET and a SET, which is right only under the item's lock.
// Its methods are safe for concurrent use, here and in other processes.
type Stock struct {
	rdb   redis.UniversalClient
	locks *rlock.Client
	wait  time.Duration // for the lock
	work  time.Duration // bound on what is done under the lock

	// beforeWrite, if there is one, is called between GET and SET.
	beforeWrite func(ctx context.Context, item string)
}

func stockKey(item string) string    { return "stock:" + item }
func reservedKey(item string) string { return "reserved:" + item }
func lockName(item string) string    { return "lock:stock:" + item }

func (s *Stock) lock(item string) *rlock.RLock { return s.locks.NewRLock(lockName(item)) }

// Reserve takes n pieces of the item out of the stock, notes who they are for,
// and returns how many are left. After an error that matches errUnchanged,
// errNoItem or errSoldOut the stock is as it was.
func (s *Stock) Reserve(ctx context.Context, item, customer string, n int) (left int, err error) {
	h, err := s.lock(item).TryLock(ctx, s.wait)
	if err != nil {
		return 0, errors.Join(err, errUnchanged)
	}
	defer func() {
		// What was done is done: that a release got no answer is no reason to tell the
		// customer that it failed. That the lock was lost is one: somebody else may have
		// overwritten what we wrote.
		if uerr := h.Unlock(ctx); errors.Is(uerr, rlock.ErrLost) && !errors.Is(err, rlock.ErrLost) {
			err = errors.Join(err, uerr)
		}
	}()

	// A customer who hangs up ends ctx. That may end the wait, but must not stop us
	// between two writes: under the lock only its loss and our own bound count.
	work, cancel := context.WithTimeout(h.Context(context.WithoutCancel(ctx)), s.work)
	defer cancel()

	left, err = s.Deduct(work, item, n) // takes the same lock: re-enters
	if err != nil {
		return 0, err
	}
	if err := s.rdb.HIncrBy(work, reservedKey(item), customer, int64(n)).Err(); err != nil {
		return 0, fmt.Errorf("%d pieces of %s were taken out and not noted: %w", n, item, err)
	}
	return left, nil
}

// Deduct takes n pieces of the item out of the stock, under the item's lock, and
// returns how many are left. Its errors are those of Reserve.
func (s *Stock) Deduct(ctx context.Context, item string, n int) (left int, err error) {
	ran := false
	err = s.lock(item).TryDo(ctx, s.wait, func(ctx context.Context) (err error) {
		ran = true
		left, err = s.deduct(ctx, item, n)
		return err
	})
	if err != nil && !ran {
		err = errors.Join(err, errUnchanged)
	}
	return left, err
}

// deduct does it; ctx is inside the lock.
func (s *Stock) deduct(ctx context.Context, item string, n int) (left int, err error) {
	have, err := s.rdb.Get(ctx, stockKey(item)).Int()
	if errors.Is(err, redis.Nil) {
		return 0, errNoItem
	} else if err != nil {
		return 0, errors.Join(err, context.Cause(ctx), errUnchanged)
	}
	if have < n {
		return 0, errSoldOut
	}
	if s.beforeWrite != nil {
		s.beforeWrite(ctx, item)
	}
	// The last look before the write. It asks the clock, so it sees that the process
	// was stopped for too long. A context derived from ours would not: it learns of
	// the loss by a timer.
	if _, held := s.lock(item).HoldFrom(ctx); !held {
		return 0, errors.Join(context.Cause(ctx), errUnchanged)
	}
	return have - n, s.rdb.Set(ctx, stockKey(item), have-n, 0).Err()
}

// Put sets the number of pieces. To repeat it after an error does no harm.
func (s *Stock) Put(ctx context.Context, item string, n int) error {
	return s.lock(item).TryDo(ctx, s.wait, func(ctx context.Context) error {
		return s.rdb.Set(ctx, stockKey(item), n, 0).Err()
	})
}

// Left returns the number of pieces. It takes no lock: the answer may be old
// when it arrives.
func (s *Stock) Left(ctx context.Context, item string) (int, error) {
	n, err := s.rdb.Get(ctx, stockKey(item)).Int()
	if errors.Is(err, redis.Nil) {
		return 0, errNoItem
	}
	return n, err
}
