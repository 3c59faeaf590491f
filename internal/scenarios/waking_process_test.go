//go:build scenarios

package scenarios_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestB008ServerRestartBringsSubscriptionsBack(t *testing.T) {
	const waiters, pairs = 50, 100
	r := newRigAlone(t, redistest.Config{})
	h := r.mustLock(r.lock(rlock.Options{Lease: 2 * long}))
	clients := r.clients(5, rlock.Options{Lease: long})
	var parked sync.WaitGroup
	parked.Add(waiters)
	done := make(chan []visit, 1)
	go func() {
		done <- r.contend(waiters, contest{turns: 1, lock: func(i int) *rlock.RLock {
			parked.Done()
			return clients[i%len(clients)].NewRLock(r.name)
		}})
	}()
	parked.Wait()
	r.awaitSubscribers(r.name, int64(len(clients)))

	if err := r.RestartKeepingData(t.Context()); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	redistest.Eventually(t, 5*time.Second, func() bool { return r.subscribers(r.name) == int64(len(clients)) },
		"the %d clients have subscribed again", len(clients))
	t.Logf("subscribed again %v after the restart", time.Since(restarted))
	r.wantHeld(h, "1")
	released := time.Now()
	r.mustUnlock(h)
	await(t, done, stuck, "all waiters have had their turn")
	t.Logf("all %d waiters had their turn %v after the release", waiters, time.Since(released))
	if took := time.Since(released); took > recheck/2 {
		t.Errorf("the waiters needed %v: some were not woken", took)
	}

	began := time.Now()
	visits := r.contend(2*len(clients), contest{
		turns: pairs / (2 * len(clients)),
		lock:  func(i int) *rlock.RLock { return clients[i%len(clients)].NewRLock(r.name) },
	})
	t.Logf("%d contended turns took %v", len(visits), time.Since(began))
	if worst := quantile(handOvers(visits), 1); worst > slack {
		t.Errorf("a hand-over took %v", worst)
	}
}

func TestB017AKilledHolderKeepsItsLeaseAndNoLonger(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	r := newRig(t)
	holder := start(t, "holder", r.Addr(), lease)
	_, held := holder.mustLock(r.name)
	holder.kill()
	if left := r.ttl(); left <= 0 {
		t.Fatalf("the lock of the killed holder has %v left", left)
	}
	lock := r.lock(rlock.Options{Lease: lease})
	waiting := r.begin(func() (*rlock.Hold, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return lock.Lock(ctx)
	})
	got := awaitHold(t, waiting, stuck)
	took := got.at.Sub(held)
	t.Logf("the waiter had the lock %v after the killed holder", took)
	if took > lease+slack {
		t.Errorf("the waiter had the lock %v after the killed holder, want at most %v", took, lease)
	}
	r.mustUnlock(got.hold)
}
