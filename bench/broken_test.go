package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// noLock lets everybody in.
type noLock struct{}

func (noLock) name() string                                         { return "nolock" }
func (noLock) about() string                                        { return "no lock at all" }
func (noLock) open(*redis.Client, string, settings) (locker, error) { return noLock{}, nil }
func (noLock) close() error                                         { return nil }
func (noLock) lock(ctx context.Context) (unlockFunc, error)         { return noUnlock, ctx.Err() }
func noUnlock(context.Context) error                                { return nil }

// blindDelete is a lock with a lease shorter than the work and a release that
// deletes whatever lock is there. It never notices that its own was gone.
type blindDelete struct{}

func (blindDelete) name() string  { return "blind" }
func (blindDelete) about() string { return "DEL without a look at the token" }

func (blindDelete) open(rdb *redis.Client, key string, _ settings) (locker, error) {
	return &blindLocker{rdb: rdb, key: key, lease: time.Millisecond}, nil
}

// checkedDelete has the same short lease, but looks at the token.
type checkedDelete struct{ blindDelete }

func (checkedDelete) name() string { return "checked" }

func (checkedDelete) open(rdb *redis.Client, key string, _ settings) (locker, error) {
	return &blindLocker{rdb: rdb, key: key, lease: time.Millisecond, check: true}, nil
}

type blindLocker struct {
	rdb   *redis.Client
	key   string
	lease time.Duration
	check bool
}

func (l *blindLocker) lock(ctx context.Context) (unlockFunc, error) {
	for {
		got, err := l.rdb.SetNX(ctx, l.key, "anybody", l.lease).Result()
		switch {
		case err != nil:
			return nil, err
		case got:
			return l.unlock, nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (l *blindLocker) unlock(ctx context.Context) error {
	n, err := l.rdb.Del(context.WithoutCancel(ctx), l.key).Result()
	if err == nil && n == 0 && l.check {
		return errLost
	}
	return err
}

func (*blindLocker) close() error { return nil }

// failing cannot be locked once it has been warmed up.
type failing struct{ noLock }

func (failing) name() string { return "failing" }

func (failing) open(*redis.Client, string, settings) (locker, error) { return &failingLocker{}, nil }

type failingLocker struct {
	noLock
	warm bool
}

func (l *failingLocker) lock(context.Context) (unlockFunc, error) {
	if !l.warm {
		l.warm = true // warming up is done by one goroutine, before the others start
		return noUnlock, nil
	}
	return nil, errors.New("out of order")
}

// losing loses every lock, the one of the warming up included.
type losing struct{ noLock }

func (losing) name() string                                         { return "losing" }
func (losing) open(*redis.Client, string, settings) (locker, error) { return losing{}, nil }

func (losing) lock(ctx context.Context) (unlockFunc, error) {
	return func(context.Context) error { return errLost }, ctx.Err()
}

func TestBrokenStrategyFailsTheRun(t *testing.T) {
	tests := []struct {
		strategy strategy
		says     string
	}{
		{noLock{}, "nolock let two in at once"},
		{blindDelete{}, "blind let two in at once"},
		{checkedDelete{}, "checked lost its lock while holding it"},
		{losing{}, "losing lost its lock while holding it"},
		{failing{}, "failing ended with an error: out of order"},
	}
	for _, test := range tests {
		t.Run(test.strategy.name(), func(t *testing.T) {
			got := play(t.Context(), t, []strategy{pollingStrategy{}, test.strategy},
				"-redis", "embedded", "-quick", "-duration", "400ms", "-work", "5ms")
			if got.code != exitFailed {
				t.Errorf("exit code %d, want %d", got.code, exitFailed)
			}
			text := strings.Join(strings.Fields(got.stdout), " ")
			if !strings.Contains(text, "VERDICT custom: FAILED: ") || !strings.Contains(text, test.says) {
				t.Errorf("the verdict does not say %q:\n%s", test.says, got.stdout)
			}
		})
	}
}
