package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// latchkeyStrategy is rlock with its default options, one rlock.Client for each
// go-redis client.
type latchkeyStrategy struct{}

func (latchkeyStrategy) name() string { return subject }

func (latchkeyStrategy) about() string {
	return "rlock: a local queue in each client, whose head sleeps on a pub/sub channel"
}

func (latchkeyStrategy) open(rdb *redis.Client, key string, _ settings) (locker, error) {
	client, err := rlock.New(rdb, rlock.Options{})
	if err != nil {
		return nil, err
	}
	return &latchkeyLocker{client: client, rlock: client.NewRLock(key)}, nil
}

type latchkeyLocker struct {
	client *rlock.Client
	rlock  *rlock.RLock
}

func (l *latchkeyLocker) lock(ctx context.Context) (unlockFunc, error) {
	hold, err := l.rlock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return unlockHold(ctx, hold) }, nil
}

func unlockHold(ctx context.Context, hold *rlock.Hold) error {
	err := hold.Unlock(ctx)
	if errors.Is(err, rlock.ErrNotHeld) { // ErrLost too
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (l *latchkeyLocker) close() error { return l.client.Close() }
