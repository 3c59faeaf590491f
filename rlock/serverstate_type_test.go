package rlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// setData puts a key of another type under the lock's name. The test ends with
// checkData.
func (i *ill) setData(t *testing.T) {
	t.Helper()
	i.do(t, "SET", "lock", "data")
}

// checkData checks that the data is as it was, without a TTL, and removes it.
func (i *ill) checkData(t *testing.T) {
	t.Helper()
	got, err := i.admin.Get(t.Context(), "lock").Result()
	if ttl := i.admin.PTTL(t.Context(), "lock").Val(); err != nil || got != "data" || ttl != -1 {
		t.Errorf("the data is %q, PTTL %v, %v", got, ttl, err)
	}
	i.do(t, "DEL", "lock")
}

// scripts counts the scripts that a server executes while fn runs.
func (i *ill) scripts(t *testing.T, fn func()) int64 {
	t.Helper()
	got := i.srv.Commands(t, fn)
	return got["evalsha"] + got["eval"]
}

// TestWrongType: a key of another type is an error at once. Nothing is tried
// again and the data stays.
func TestWrongType(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	i.works(t, "other") // the scripts are known from here on
	i.setData(t)
	if n := i.scripts(t, func() { i.refuses(t, has("WRONGTYPE")) }); n != 4 {
		t.Errorf("four calls sent %d scripts", n)
	}
	l := i.c.NewRLock("lock")
	if info, err := l.Info(t.Context()); !has("WRONGTYPE")(err) || info != (rlock.Info{}) {
		t.Errorf("Info: %+v, %v", info, err)
	}
	if freed, err := l.ForceUnlock(t.Context()); !has("WRONGTYPE")(err) || freed {
		t.Errorf("ForceUnlock: %v, %v", freed, err)
	}
	i.checkData(t)
	i.works(t, "lock")
}

// TestOverwrittenUnlock: the lock is lost, and what is there is not ours.
func TestOverwrittenUnlock(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	h := i.lock(t, "lock")
	i.works(t, "other")
	i.setData(t)
	var err error
	if n := i.scripts(t, func() { err = h.Unlock(t.Context()) }); n != 1 {
		t.Errorf("Unlock sent %d scripts", n)
	}
	if !has("WRONGTYPE")(err) || classesOf(err) != "not held, lost" {
		t.Errorf("Unlock: %v of class %q", err, classesOf(err))
	}
	if n := i.scripts(t, func() { err = h.Unlock(t.Context()) }); n != 0 || !errors.Is(err, rlock.ErrNotHeld) {
		t.Errorf("a second Unlock sent %d scripts: %v", n, err)
	}
	i.checkData(t)
	i.works(t, "lock")
}

// TestOverwrittenRenewal: the watchdog finds that the lock is lost, long before
// its lease ends, and renews it no more.
func TestOverwrittenRenewal(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{Lease: 30 * time.Second, RenewEvery: 100 * time.Millisecond})
	h := i.lock(t, "lock")
	inside := h.Context(t.Context())
	i.setData(t)
	select {
	case <-h.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("not lost after 100 renewals")
	}
	if !errors.Is(h.Err(), rlock.ErrLost) || inside.Err() == nil {
		t.Errorf("the hold's error is %v, the context's %v", h.Err(), inside.Err())
	}
	if _, err := i.c.NewRLock("lock").Lock(inside); !errors.Is(err, rlock.ErrLost) && !errors.Is(err, inside.Err()) {
		t.Errorf("re-entry: %v", err)
	}
	if n := i.scripts(t, func() { <-time.After(300 * time.Millisecond) }); n != 0 {
		t.Errorf("after the loss %d scripts were sent", n)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	i.checkData(t)
}

// TestOverwrittenReentry: the inner hold is refused and the data stays.
func TestOverwrittenReentry(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	h := i.lock(t, "lock")
	i.setData(t)
	inner, err := i.c.NewRLock("lock").Lock(h.Context(t.Context()))
	if inner != nil || !has("WRONGTYPE")(err) {
		t.Errorf("re-entry: a hold %v, %v", inner != nil, err)
	}
	if err := h.Renew(t.Context(), time.Minute); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Renew: %v", err)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	i.checkData(t)
}

// TestOverwrittenWaiter: who waits for the holder when the key is overwritten
// gets the server's error when it looks, at the latest after recheck.
func TestOverwrittenWaiter(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	h := i.lock(t, "lock", rlock.WithLease(300*time.Millisecond))
	other := clientOn(t, i.rdb, rlock.Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := other.NewRLock("lock").Lock(t.Context())
		failed <- err
	}()
	redistest.Eventually(t, 10*time.Second, func() bool { return i.subscribed(t) == 1 }, "the waiter sleeps")
	i.setData(t)
	select {
	case err := <-failed:
		if !has("WRONGTYPE")(err) || classesOf(err) != "" {
			t.Errorf("%v of class %q", err, classesOf(err))
		}
	case <-time.After(20 * time.Second):
		t.Error("the waiter waits on")
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	i.checkData(t)
}

// subscribed counts the subscriptions of all connections.
func (i *ill) subscribed(t *testing.T) int {
	t.Helper()
	var n int
	for _, conn := range i.srv.Connections(t) {
		n += conn.Subscriptions
	}
	return n
}
