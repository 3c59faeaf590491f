//go:build scenarios

package scenarios_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// slack is how much later than a fault allows a waiter of these tests may have
// the lock. It is far below what looking without a message would take.
const slack = 500 * time.Millisecond

// inTime makes a measurement that has to stay within a bound, up to three times:
// a busy machine stops everybody for 100 ms and more now and then, and no such
// moment comes twice. A wake-up that was missed has no second chance: what it
// takes until the waiter looks for itself is no machine's doing.
func inTime(t *testing.T, bound time.Duration, measure func() time.Duration) time.Duration {
	t.Helper()
	var took time.Duration
	for range 3 {
		took = measure()
		if took <= bound {
			return took
		}
		if took > recheck/2 {
			t.Fatalf("the waiter had the lock after %v: nothing woke it", took)
		}
	}
	t.Errorf("the waiter had the lock after %v, want at most %v", took, bound)
	return took
}

// testSlowSubscribe releases the lock while the subscription of its waiter is
// on its way to the server, or the confirmation on its way back.
func testSlowSubscribe(t *testing.T, delay, release time.Duration) {
	t.Helper()
	faults := map[string]func(*faultproxy.Match) *faultproxy.Rule{
		"request": func(m *faultproxy.Match) *faultproxy.Rule { return m.DelayRequest(delay) },
		"reply":   func(m *faultproxy.Match) *faultproxy.Rule { return m.DelayReply(delay) },
	}
	for what, fault := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.proxy()
			slow := fault(p.On(faultproxy.Cmd("SUBSCRIBE"), faultproxy.Nth(1)))
			waiter, holder := r.lock(rlock.Options{Lease: long}, through(p)), r.lock(rlock.Options{Lease: long})
			h := r.mustLock(holder)
			waiting := r.beginLock(waiter)
			await(t, slow.Fired(), stuck, "the waiter subscribes")
			subscribing := time.Now()
			pass(release)
			r.mustUnlock(h)
			got := awaitHold(t, waiting, stuck)
			r.mustUnlock(got.hold)
			took := got.at.Sub(subscribing)
			t.Logf("subscribing took %v, the waiter had the lock after %v", delay, took)
			if took > delay+slack {
				t.Errorf("the waiter had the lock after %v, want about %v", took, delay)
			}
		})
	}
}

func TestB002ReleasedLongBeforeTheSubscriptionIsConfirmed(t *testing.T) {
	t.Parallel()
	testSlowSubscribe(t, 500*time.Millisecond, 100*time.Millisecond)
}

func TestB011SubscribedOnlyOnceConfirmed(t *testing.T) {
	t.Parallel()
	testSlowSubscribe(t, 300*time.Millisecond, 50*time.Millisecond)
}

// The case is about a read/write lock; the moment at which its waiter was
// missed is one that every lock has.
func TestB004ReleasedAtEveryMomentOfSubscribing(t *testing.T) {
	const span, sweep = 20 * time.Millisecond, 100 * time.Millisecond
	r := newRigAlone(t, redistest.Config{})
	p := r.proxy()
	// Half of the subscriptions are in flight at the time of each release.
	p.On(faultproxy.Cmd("SUBSCRIBE")).DelayReply(span / 2)
	waiter, holder := r.client(rlock.Options{Lease: long}, through(p)), r.client(rlock.Options{Lease: long})
	n := rounds(t, 200, 50)
	var worst time.Duration
	name := 0
	for i := range n {
		after := span * time.Duration(i) / time.Duration(n)
		took := inTime(t, sweep, func() time.Duration {
			name++ // not one that is still subscribed to
			lock := r.prefix + strconv.Itoa(name)
			h := r.mustLock(holder.NewRLock(lock))
			waiting := r.beginLock(waiter.NewRLock(lock))
			pass(after)
			released := time.Now()
			r.mustUnlock(h)
			got := awaitHold(t, waiting, stuck)
			r.mustUnlock(got.hold)
			return got.at.Sub(released)
		})
		worst = max(worst, took)
	}
	t.Logf("%d moments: the worst hand-over took %v", n, worst)
}

// The message is published between the end of one subscription connection and
// the confirmation of the next.
func TestB010ReleasedWhileTheSubscriptionIsDown(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	holder, waiter := r.lock(rlock.Options{Lease: long}), r.lock(rlock.Options{Lease: long})
	var took []time.Duration
	for range rounds(t, 200, 40) {
		h := r.mustLock(holder)
		waiting := r.beginLock(waiter)
		r.awaitSubscribers(r.name, 1)
		killed := make(chan error, 1)
		go func() { killed <- r.rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err() }()
		pass(rand.N(time.Millisecond)) // so that either comes first
		released := time.Now()
		r.mustUnlock(h)
		got := awaitHold(t, waiting, stuck)
		took = append(took, got.at.Sub(released))
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		r.mustUnlock(got.hold)
	}
	worst := quantile(took, 1)
	t.Logf("%d rounds: p50 %v, worst %v", len(took), quantile(took, 0.5), worst)
	if worst > 500*time.Millisecond {
		t.Errorf("a hand-over took %v, want at most 500ms", worst)
	}
}

// The case is about a failover, after which the subscription connection stays
// open and says nothing. A network that drops that connection's packets alone
// looks the same to the waiter.
func TestB013ASilentSubscriptionConnectionIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.proxy()
	waiter, holder := r.lock(rlock.Options{Lease: long}, through(p)), r.lock(rlock.Options{Lease: long})
	h := r.mustLock(holder)
	waiting := r.beginLock(waiter)
	r.awaitSubscribers(r.name, 1)
	p.Subscriptions().Blackhole()
	released := time.Now()
	r.mustUnlock(h)
	got := awaitHold(t, waiting, stuck)
	r.mustUnlock(got.hold)
	took := got.at.Sub(released)
	t.Logf("the waiter had the lock after %v", took)
	if took > recheck+slack {
		t.Errorf("the waiter had the lock %v after the release, want at most %v", took, recheck)
	}
	p.Subscriptions().Heal()
	p.Subscriptions().Kill()
}

// The case is about a subscription that works, on a server on which nobody
// publishes any more. A lock that goes without a message looks the same.
func TestB014AWaiterLooksThoughItsSubscriptionWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	waiter, holder := r.lock(rlock.Options{Lease: long}), r.lock(rlock.Options{Lease: long})
	h := r.mustLock(holder)
	waiting := r.beginLock(waiter)
	r.awaitSubscribers(r.name, 1)
	r.removing(h)
	removed := time.Now()
	r.del()
	got := awaitHold(t, waiting, stuck)
	r.leave(h)
	r.mustUnlock(got.hold)
	took := got.at.Sub(removed)
	t.Logf("the waiter had the lock after %v", took)
	if took > recheck+slack {
		t.Errorf("the waiter had the lock %v after it was removed, want at most %v", took, recheck)
	}
	wantIs(t, h.Unlock(t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
}

func TestB016ForceUnlockWakesAWaiter(t *testing.T) {
	const lease, waiters = 3 * time.Second, 5
	r := newRigAlone(t, redistest.Config{})
	holder, admin := r.client(rlock.Options{Lease: lease}), r.client(rlock.Options{})
	clients := r.clients(2, rlock.Options{Lease: lease})
	round := 0
	inTime(t, 100*time.Millisecond, func() time.Duration {
		round++
		name := r.prefix + strconv.Itoa(round)
		h := r.mustLock(holder.NewRLock(name))
		waiting := make(chan outcome, waiters)
		for i := range waiters {
			go func() { waiting <- <-r.beginLock(clients[i%len(clients)].NewRLock(name)) }()
		}
		r.awaitSubscribers(name, int64(len(clients)))
		r.removing(h)
		freed := time.Now()
		if was, err := admin.NewRLock(name).ForceUnlock(t.Context()); err != nil || !was {
			t.Fatalf("ForceUnlock = %v, %v", was, err)
		}
		next := awaitHold(t, waiting, stuck)
		await(t, h.Lost(), lease/3+slack, "the old holder's next renewal tells it of its loss")
		wantIs(t, h.Err(), rlock.ErrLost)
		wantIs(t, h.Unlock(t.Context()), rlock.ErrLost, rlock.ErrNotHeld)
		r.leave(h)
		r.wantHeld(next.hold, "1")
		if err := next.hold.Err(); err != nil {
			t.Errorf("the new holder's hold ended: %v", err)
		}
		r.mustUnlock(next.hold)
		for range waiters - 1 {
			r.mustUnlock(awaitHold(t, waiting, stuck).hold)
		}
		return next.at.Sub(freed)
	})
}
