//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// The server takes no more connections at the moment at which a waiter needs
// one for its subscription.
func TestB155NoConnectionForTheSubscription(t *testing.T) {
	t.Parallel()
	r := newRigAlone(t, redistest.Config{Args: []string{"--maxclients", "12"}})
	holder, waiter := r.lock(rlock.Options{Lease: long}), r.lock(rlock.Options{Lease: long})
	h := r.mustLock(holder)
	_, err := timed(t, func() (*rlock.Hold, error) { return waiter.TryLock(t.Context(), 0) }) // it has a connection now
	wantIs(t, err, rlock.ErrNotAcquired)
	r.wantHeld(h, "1") // and so has the observer
	full := fillConnections(t, r)

	const bound = 500 * time.Millisecond
	took, err := timed(t, func() (*rlock.Hold, error) { return waiter.TryLock(t.Context(), bound) })
	within(t, "TryLock", took, bound)
	wantIs(t, err, rlock.ErrNotAcquired)

	// Bounded, since it may need a second connection for a moment, and be refused.
	waiting := r.begin(func() (*rlock.Hold, error) { return waiter.TryLock(t.Context(), stuck) })
	pass(100 * time.Millisecond) // it tries to subscribe
	released := time.Now()
	r.mustUnlock(h)
	got := awaitHold(t, waiting, stuck)
	t.Logf("without a subscription, the waiter had the lock after %v", got.at.Sub(released))
	if took := got.at.Sub(released); took > recheck+slack {
		t.Errorf("the waiter had the lock after %v, want at most %v", took, recheck)
	}
	r.mustUnlock(got.hold)
	for _, c := range full {
		_ = c.Close()
	}
}

// fillConnections connects until the server refuses.
func fillConnections(t *testing.T, r *rig) []net.Conn {
	t.Helper()
	var all []net.Conn
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
	})
	refused := []byte("-ERR max number of clients reached")
	for range 100 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			return all
		}
		_ = c.SetReadDeadline(time.Now().Add(stuck))
		reply := make([]byte, len(refused))
		n, err := c.Read(reply)
		if err != nil || slices.Equal(reply[:n], refused) {
			return all
		}
	}
	t.Fatal("the server takes any number of connections")
	return nil
}

// The one connection of the pool is in use by somebody else.
func TestB155NoConnectionInThePool(t *testing.T) {
	t.Parallel()
	const bound = 500 * time.Millisecond
	r := newRig(t)
	rdb := r.Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 100*time.Millisecond })
	c, err := rlock.New(rdb, rlock.Options{Lease: long})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(); _ = c.Close() })
	lock := c.NewRLock(r.name)
	r.mustUnlock(r.mustLock(lock))
	busy := make(chan error, 1)
	go func() { busy <- rdb.BLPop(t.Context(), 3*time.Second, r.prefix+"list").Err() }()
	redistest.Eventually(t, stuck, func() bool { return rdb.PoolStats().IdleConns == 0 }, "the connection is in use")

	took, err := timed(t, func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), bound) })
	within(t, "TryLock", took, bound)
	wantNot(t, err, rlock.ErrNotAcquired, context.DeadlineExceeded)
	if err := r.rdb.RPush(t.Context(), r.prefix+"list", "done").Err(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, busy, stuck, "the connection is free again"); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	r.mustUnlock(r.mustLock(lock))
}
