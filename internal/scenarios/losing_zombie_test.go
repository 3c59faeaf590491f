//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// An attempt whose caller gives up around the moment of the grant leaves
// nobody behind who holds or renews.
func TestB133ACancelledAttemptIsNeverRenewed(t *testing.T) {
	t.Parallel()
	const lease, workers, delay = time.Second, 8, time.Millisecond
	r := newRigAlone(t, redistest.Config{})
	r.loadScripts()
	p := r.proxy()
	c := r.client(rlock.Options{Lease: lease}, through(p))
	p.On(acquiring()).DelayRequest(delay)
	p.On(acquiring()).DelayReply(delay) // the grant is under way for a while
	trials := rounds(t, 5000, 400)
	// The sweep goes to four times the time that this machine takes for a grant.
	var grant time.Duration
	r.eachOf(workers, workers, func(i int) error {
		for range 5 {
			began := time.Now()
			h, err := c.NewRLock(r.prefix+strconv.Itoa(i)).TryLock(t.Context(), stuck)
			if err != nil {
				return err
			}
			if i == 0 {
				grant = time.Since(began)
			}
			r.checkUnlock(h)
		}
		return nil
	})
	m := r.Monitor(t)
	var mu sync.Mutex
	var failed []string
	r.eachOf(workers, trials, func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 4*grant*time.Duration(i)/time.Duration(trials))
		defer cancel()
		name := r.prefix + strconv.Itoa(i)
		h, err := c.NewRLock(name).TryLock(ctx, time.Minute)
		if err == nil {
			return h.Unlock(t.Context())
		}
		wantIs(t, err, context.DeadlineExceeded)
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, name)
		return nil
	})
	t.Logf("%d of %d attempts were cancelled, from 0 to %v after they began", len(failed), trials, 4*grant)
	if len(failed) == 0 || len(failed) == trials {
		t.Error("the sweep did not cross the moment of the grant")
	}
	r.CheckNoKeys(t, "") // within 2 s, two leases
	calls := m.Stop(t)
	for _, name := range failed {
		if n := len(renewalsOf(calls, name)); n != 0 {
			t.Errorf("%s was renewed %d times after its Lock had failed", name, n)
		}
	}
}

// A goroutine that ends without Unlock keeps its lock for as long as the
// process lives, as the documentation says. What guards against it: Do, which
// always releases; a fixed lease; and that the holder can be found and its lock
// be taken.
func TestB134AForgottenLockIsFoundAndTaken(t *testing.T) {
	t.Parallel()
	const lease = watchdogLease
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	other := r.lock(rlock.Options{Lease: lease})
	ended := make(chan string, 1)
	go func() {
		var owner string
		defer func() { _ = recover(); ended <- owner }()
		h, err := c.NewRLock(r.name).TryLock(context.Background(), stuck)
		if err != nil {
			t.Error(err)
			return
		}
		owner = h.Owner()
		panic("the work failed")
	}()
	owner := await(t, ended, stuck, "the goroutine ends")
	for range 3 {
		runtime.GC()
	}
	v := r.watch(r.name, owner, other)
	pass(leases(t, lease, 5, 3))
	v.wantRenewed(lease)

	info, err := other.Info(t.Context())
	if err != nil || !info.Held || info.Owner != owner || client(info.Owner) != c.ID() {
		t.Errorf("Info = %+v, %v, want the owner %s", info, err, owner)
	}
	if freed, err := other.ForceUnlock(t.Context()); !freed || err != nil {
		t.Errorf("ForceUnlock = %v, %v", freed, err)
	}
	r.mustUnlock(r.mustLock(other))
	r.staysFree()
}

// The guards of TestB134AForgottenLockIsFoundAndTaken that need nobody's help.
func TestB134GuardsAgainstAForgottenLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: watchdogLease})
	for name, work := range map[string]func(context.Context) error{
		"a panic":  func(context.Context) error { panic("the work failed") },
		"a Goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_ = lock.Do(context.Background(), work)
		}()
		await(t, ended, stuck, "the work ends by "+name)
		r.wantFree()
	}
	if _, err := lock.TryLock(t.Context(), stuck, rlock.WithLease(watchdogLease)); err != nil {
		t.Fatal(err)
	}
	r.awaitGone(r.name, watchdogLease+tellSlack)
}

// An Unlock that cannot get a connection says so, and the lock ends all the
// same: by its lease, or earlier if a connection becomes free meanwhile.
func TestB136AnUnlockWithoutAConnectionEndsTheRenewal(t *testing.T) {
	t.Parallel()
	const bound = watchdogLease / 3 // when Unlock returns, the lease has not ended by itself
	r := newRig(t)
	opts := rlock.Options{Lease: watchdogLease, UnlockTimeout: bound}
	rdb := r.Client(t, func(o *redis.Options) {
		o.PoolSize, o.PoolTimeout, o.ClientName = 1, 50*time.Millisecond, r.prefix
	})
	c, err := rlock.New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(); _ = c.Close() })
	for _, freeAtOnce := range []bool{false, true} {
		h := r.mustLock(c.NewRLock(r.name))
		release := r.hog(rdb)
		r.leave(h)
		began := time.Now()
		err := h.Unlock(t.Context())
		took := time.Since(began)
		wantIs(t, err, redis.ErrPoolTimeout)
		wantText(t, err, "outcome unknown")
		if took > bound+tellSlack {
			t.Errorf("Unlock took %v, its bound is %v", took, bound)
		}
		if freeAtOnce {
			release()
		}
		r.awaitGone(r.name, watchdogLease+tellSlack)
		r.staysFree()
		if !freeAtOnce {
			release()
		}
	}
}

// hog takes the only connection of a client, which is named after the prefix,
// until release is called.
func (r *rig) hog(rdb *redis.Client) (release func()) {
	r.t.Helper()
	queue, done := r.prefix+"queue", make(chan error, 1)
	go func() { done <- rdb.BLPop(context.Background(), 5*time.Second, queue).Err() }()
	redistest.Eventually(r.t, stuck, func() bool {
		return slices.ContainsFunc(r.Connections(r.t), func(c redistest.Connection) bool {
			return c.Name == r.prefix && c.LastCommand == "blpop" && strings.Contains(c.Fields["flags"], "b")
		})
	}, "the only connection is in use")
	return func() {
		r.t.Helper()
		if err := r.rdb.RPush(r.t.Context(), queue, "go").Err(); err != nil {
			r.t.Fatal(err)
		}
		if err := await(r.t, done, stuck, "the connection is free"); err != nil {
			r.t.Error(err)
		}
	}
}

// A renewal that is due at the moment of an unlock never reaches the next hold
// of the name: that one has a short fixed lease, which a renewal would lengthen.
func TestB140ARenewalNeverReachesTheNextHold(t *testing.T) {
	t.Parallel()
	const lease, next, names = 600 * time.Millisecond, 300 * time.Millisecond, 20
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	each := rounds(t, 1000, 100) / names
	r.eachOf(names, names, func(i int) error {
		lock := c.NewRLock(r.prefix + strconv.Itoa(i))
		for range each {
			if err := r.unlockOnTheTick(lock, lease, next); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) unlockOnTheTick(lock *rlock.RLock, lease, next time.Duration) error {
	first, err := lock.TryLock(r.t.Context(), stuck)
	if err != nil {
		return err
	}
	following := r.begin(func() (*rlock.Hold, error) { return lock.TryLock(r.t.Context(), stuck, rlock.WithLease(next)) })
	// The renewal goes out an eighth of its interval before it is due, or later.
	pass(lease/3 - lease/24 + rand.N(lease/16))
	if err := first.Unlock(r.t.Context()); err != nil {
		return err
	}
	got := <-following
	if got.err != nil {
		return got.err
	}
	sent := got.hold.ValidUntil().Add(-next)
	ttl, err := r.rdb.PTTL(r.t.Context(), lock.Name()).Result()
	if err == nil && ttl > next {
		err = fmt.Errorf("right after the grant the next hold has a TTL of %v", ttl)
	}
	pass(time.Until(sent.Add(next)))
	wantIs(r.t, got.hold.Err(), rlock.ErrLost)
	r.leave(got.hold)
	if err == nil && !r.goneWithin(lock.Name(), lease/2) { // Redis counts from a little later than the client
		err = fmt.Errorf("%s is still there %v after its lease", lock.Name(), lease/2)
	}
	return err
}

// Renewals that can reach no server end with the lease, and the holder is told.
func TestB143AClosedRedisClientEndsTheHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rdb := r.Client(t)
	c, err := rlock.New(rdb, rlock.Options{Lease: watchdogLease, UnlockTimeout: shortUnlock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(); _ = c.Close() })
	other := r.lock(rlock.Options{Lease: watchdogLease})
	h := r.mustLock(c.NewRLock(r.name))
	awaitRenewed(t, h)
	at := told(h)
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	next := r.mustLock(other)
	wantTold(t, at, closed, watchdogLease)
	wantIs(t, h.Err(), rlock.ErrLost)
	r.wantLostUnlock(h)
	if _, err := c.NewRLock(r.name).Lock(t.Context()); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Lock over a closed client: %v", err)
	}
	r.mustUnlock(next)
}
