package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// TestScriptsFlushed flushes the scripts over and over while locks are taken,
// renewed and released: nobody notices, but for the server.
func TestScriptsFlushed(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{Lease: 2 * time.Second, RenewEvery: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if err := i.admin.ScriptFlush(ctx).Err(); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	const locks, each, turns = 3, 4, 10
	var inside, renewed [locks]atomic.Int64
	var users sync.WaitGroup
	for n := range locks * each {
		users.Go(func() {
			name := n % locks
			for range turns {
				i.turn(t, fmt.Sprint("lock", name), &inside[name], &renewed[name])
			}
		})
	}
	users.Wait()
	cancel()
	all.Wait()
	for name := range locks {
		if renewed[name].Load() == 0 {
			t.Errorf("lock %d was never renewed", name)
		}
	}
}

// turn takes a lock, waits for a renewal, and gives it back.
func (i *ill) turn(t *testing.T, name string, inside, renewed *atomic.Int64) {
	t.Helper()
	h, err := i.c.NewRLock(name).Lock(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if n := inside.Add(1); n != 1 {
		t.Errorf("%d holders of %s", n, name)
	}
	first := h.ValidUntil()
	redistest.Eventually(t, 10*time.Second, func() bool { return h.ValidUntil().After(first) || h.Err() != nil }, "a renewal")
	renewed.Add(1)
	inside.Add(-1)
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClientClosed: a go-redis client that was closed under us is an error at
// once, for Unlock too; the key is left to its lease.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{Lease: 2 * time.Second})
	h := i.lock(t, "held")
	if err := i.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	closed := func(call func() error) {
		t.Helper()
		start := time.Now()
		err := call()
		if took := time.Since(start); classesOf(err) != "redis closed" || took > atOnce {
			t.Errorf("%v of class %q after %v", err, classesOf(err), took)
		}
	}
	l := i.c.NewRLock("lock")
	for _, op := range append(acquisitions(), questions()...) {
		closed(func() error { return op.call(t.Context(), l) })
	}
	closed(func() error { return h.Unlock(t.Context()) })
	redistest.Eventually(t, 2*time.Second+slack, func() bool { return i.admin.Exists(t.Context(), "held").Val() == 0 },
		"the lease frees the lock")
}

// TestPoolUsedUp: a pool without a free connection is not a holder either, and
// what was never sent leaves nothing to sweep.
func TestPoolUsedUp(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{}, func(o *redis.Options) {
		o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond
	})
	i.works(t, "lock")
	popped := make(chan error, 1)
	go func() { popped <- i.rdb.BLPop(t.Context(), time.Minute, "list").Err() }()
	blocked := func() bool {
		for _, conn := range i.srv.Connections(t) {
			if conn.LastCommand == "blpop" {
				return true
			}
		}
		return false
	}
	redistest.Eventually(t, 10*time.Second, blocked, "the connection is in use")
	if n := i.scripts(t, func() {
		i.triesOn(t, is(redis.ErrPoolTimeout))
		i.failsOnce(t, is(redis.ErrPoolTimeout))
	}); n != 0 {
		t.Errorf("%d scripts were executed", n)
	}
	i.do(t, "LPUSH", "list", "x")
	if err := <-popped; err != nil {
		t.Error(err)
	}
	i.works(t, "lock")
}

// TestWaitForPool: a bounded call that began without a connection gets the lock
// when there is one.
func TestWaitForPool(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{}, func(o *redis.Options) {
		o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond
	})
	conn := i.rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	got := i.startTrying(t)
	if err := errors.Join(conn.Close(), <-got); err != nil {
		t.Error(err)
	}
}
