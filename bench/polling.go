package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pollingLease  = 30 * time.Second
	releaseWithin = 5 * time.Second
)

// compareAndDelete deletes the key only while it has the caller's token: a
// holder whose lease has run out must not delete the lock of the next one.
var compareAndDelete = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`)

// pollingStrategy is the recipe that people write first.
type pollingStrategy struct{}

func (pollingStrategy) name() string { return baseline }

func (pollingStrategy) about() string {
	return "SET NX with a lease of 30 s, sleep -poll, again; compare-and-delete in Lua"
}

func (pollingStrategy) open(rdb *redis.Client, key string, s settings) (locker, error) {
	return &pollingLocker{rdb: rdb, key: key, every: s.poll}, nil
}

type pollingLocker struct {
	rdb   *redis.Client
	key   string
	every time.Duration
}

func (l *pollingLocker) lock(ctx context.Context) (unlockFunc, error) {
	token := rand.Text()
	for {
		got, err := l.attempt(ctx, token)
		if err != nil {
			return nil, err
		}
		if got {
			return func(ctx context.Context) error { return l.unlock(ctx, token) }, nil
		}
		if err := pause(ctx, l.every); err != nil {
			return nil, err
		}
	}
}

func (l *pollingLocker) attempt(ctx context.Context, token string) (bool, error) {
	got, err := l.rdb.SetNX(ctx, l.key, token, pollingLease).Result()
	if err != nil {
		return false, fmt.Errorf("polling: SET NX: %w", err)
	}
	return got, nil
}

func (l *pollingLocker) unlock(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	deleted, err := compareAndDelete.Run(ctx, l.rdb, []string{l.key}, token).Int()
	if err != nil {
		return fmt.Errorf("polling: release: %w", err)
	}
	if deleted == 0 {
		return fmt.Errorf("polling: %w", errLost)
	}
	return nil
}

func (*pollingLocker) close() error { return nil }
