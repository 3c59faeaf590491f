//go:build scenarios

package scenarios_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// each calls f for 0..n-1, all at once.
func each(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

// subscriptionConnections returns how many connections are subscribed to
// anything, and to how many channels the busiest is.
func (r *rig) subscriptionConnections() (connections, channels int) {
	r.t.Helper()
	for _, c := range r.Connections(r.t) {
		if c.Subscriptions > 0 {
			connections++
			channels = max(channels, c.Subscriptions)
		}
	}
	return connections, channels
}

func TestB146NoChannelStaysSubscribed(t *testing.T) {
	const gone = time.Second
	names := rounds(t, 1000, 400)
	r := newRigAlone(t, redistest.Config{})
	holder, waiter := r.client(rlock.Options{Lease: long}), r.client(rlock.Options{Lease: 3 * time.Second})
	held := make([]*rlock.Hold, names)
	each(names, func(i int) {
		var err error
		if held[i], err = holder.NewRLock(r.prefix + strconv.Itoa(i)).Lock(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	leave := make(chan struct{})
	var group sync.WaitGroup
	for i, h := range held {
		group.Go(func() { waitSomehow(t, i, waiter.NewRLock(h.Name()), leave) })
	}
	redistest.Eventually(t, stuck, func() bool {
		connections, channels := r.subscriptionConnections()
		return connections == 1 && channels == names
	}, "one connection subscribes to all %d channels", names)
	close(leave)
	for i := 0; i < names; i += 3 {
		if err := held[i].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	redistest.Eventually(t, gone, func() bool {
		channels, err := r.rdb.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) == 0
	}, "no channel is subscribed to")
	each(names, func(i int) {
		if err := held[i].Unlock(t.Context()); i%3 != 0 && err != nil {
			t.Error(err)
		}
	})
}

// waitSomehow waits for a lock: a third of the waiters get it, a third are
// cancelled, and the time of the others is up.
func waitSomehow(t *testing.T, i int, lock *rlock.RLock, leave <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch i % 3 {
	case 0:
		if h, err := lock.Lock(ctx); err != nil {
			t.Error(err)
		} else if err := h.Unlock(ctx); err != nil {
			t.Error(err)
		}
	case 1:
		go func() { <-leave; cancel() }()
		_, err := lock.Lock(ctx)
		wantIs(t, err, context.Canceled)
	default:
		_, err := lock.TryLock(ctx, 1500*time.Millisecond)
		wantIs(t, err, rlock.ErrNotAcquired)
	}
}

// Chaos, a quiet time, and then everything has to work.
func TestB148SubscriptionsSurviveChaos(t *testing.T) {
	t.Parallel()
	const names, workers = 200, 64
	chaos := time.Duration(rounds(t, 600, 3)) * time.Second
	quiet := time.Duration(rounds(t, 60, 2)) * time.Second
	r := newRigAlone(t, redistest.Config{})
	clients := r.clients(4, rlock.Options{Lease: long})
	end := time.Now().Add(chaos)
	var group sync.WaitGroup
	group.Go(func() { killSubscriptions(r, end) })
	for i := range workers {
		group.Go(func() {
			for time.Now().Before(end) {
				r.lockOrGiveUp(clients[i%len(clients)].NewRLock(r.prefix + strconv.Itoa(rand.N(names))))
			}
		})
	}
	group.Wait()
	pass(quiet)

	visits := r.contend(20, contest{
		turns: rounds(t, 1000, 200) / 20,
		lock:  func(i int) *rlock.RLock { return clients[i%len(clients)].NewRLock(r.name) },
	})
	worst := quantile(handOvers(visits), 1)
	t.Logf("%d turns after %v of chaos, the worst hand-over took %v", len(visits), chaos, worst)
	if worst > slack {
		t.Errorf("a hand-over took %v", worst)
	}
}

// killSubscriptions closes all subscription connections from time to time.
func killSubscriptions(r *rig, end time.Time) {
	for time.Now().Before(end) {
		if err := r.rdb.ClientKillByFilter(r.t.Context(), "TYPE", "pubsub").Err(); err != nil {
			r.t.Errorf("CLIENT KILL: %v", err)
		}
		pass(rand.N(200 * time.Millisecond))
	}
}

// lockOrGiveUp is a turn of somebody who may lose patience at any moment.
func (r *rig) lockOrGiveUp(lock *rlock.RLock) {
	ctx, cancel := context.WithTimeout(r.t.Context(), rand.N(30*time.Millisecond))
	defer cancel()
	h, err := lock.Lock(ctx)
	if err != nil {
		wantIs(r.t, err, context.DeadlineExceeded)
		return
	}
	r.enter(h)
	pass(rand.N(3 * time.Millisecond))
	r.mustUnlock(h)
}

func TestB149ManyNamesAreWaitedOnThroughOneConnection(t *testing.T) {
	names := rounds(t, 5000, 800)
	r := newRigAlone(t, redistest.Config{})
	holder, waiter := r.client(rlock.Options{Lease: 2 * long}), r.client(rlock.Options{Lease: long})
	held := make([]*rlock.Hold, names)
	each(names, func(i int) {
		var err error
		if held[i], err = holder.NewRLock(r.prefix + strconv.Itoa(i)).Lock(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	var woken sync.WaitGroup
	for _, h := range held {
		woken.Go(func() {
			if err := waiter.NewRLock(h.Name()).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	most := 0
	redistest.Eventually(t, time.Minute, func() bool {
		connections, channels := r.subscriptionConnections()
		most = max(most, connections)
		return channels == names
	}, "one connection subscribes to all %d channels", names)
	if most != 1 {
		t.Errorf("%d subscription connections, want 1", most)
	}
	rand.Shuffle(names, func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, h := range held {
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	released := time.Now()
	woken.Wait()
	took := time.Since(released)
	t.Logf("%d names: all woken %v after the last release", names, took)
	if took > recheck/2 {
		t.Errorf("the last waiter needed %v: it was not woken", took)
	}
}

// Waiters come and go so fast that joining and leaving the channel overtake one
// another, at times just when the channel is left for good.
func TestB151AChannelLeftAndJoinedAtOnce(t *testing.T) {
	t.Parallel()
	const goroutines = 8
	bursts := rounds(t, 40, 4)
	visitsEach := rounds(t, 100_000, 4000) / goroutines / bursts
	r := newRigAlone(t, redistest.Config{})
	h := r.mustLock(r.lock(rlock.Options{Lease: 2 * long}))
	quiet, busy := r.client(rlock.Options{Lease: long}), r.client(rlock.Options{Lease: long})
	permanent := make(chan outcome, 2)
	stay := func(c *rlock.Client) {
		go func() { permanent <- <-r.beginLock(c.NewRLock(r.name)) }()
	}
	stay(quiet)
	r.awaitSubscribers(r.name, 1)

	comeAndGo := func(most time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(most))
		defer cancel()
		_, err := busy.NewRLock(r.name).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
	}
	for burst := range bursts {
		most := 100 * time.Microsecond
		if burst%2 == 1 {
			most = 5 * time.Millisecond // long enough to subscribe
		}
		each(goroutines, func(int) {
			for range visitsEach {
				comeAndGo(most)
			}
			// The channel lingers for 500 ms: the next burst meets its end.
			pass(490*time.Millisecond + rand.N(20*time.Millisecond))
		})
	}
	stay(busy)
	r.awaitSubscribers(r.name, 2)
	each(goroutines, func(int) { comeAndGo(5 * time.Millisecond) })

	released := time.Now()
	r.mustUnlock(h)
	for i := range cap(permanent) {
		got := awaitHold(t, permanent, stuck)
		if took := got.at.Sub(released); took > slack {
			t.Errorf("permanent waiter %d had the lock %v after the release", i, took)
		}
		r.mustUnlock(got.hold)
	}
	redistest.Eventually(t, 2*time.Second, func() bool { return r.subscribers(r.name) == 0 }, "nobody is subscribed")
}
