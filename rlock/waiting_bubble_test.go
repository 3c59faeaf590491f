package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// justAfter checks that a key's end was noticed on time: 1 ms and up to 4 ms of
// jitter after it by PTTL, which cuts off what is less than a millisecond.
func (r *rig) justAfter(expiry time.Duration) {
	r.Helper()
	r.between(expiry+1, expiry+5*ms)
}

func TestBubbleAWaiterWakesWhenTheKeyOfADeadHolderExpires(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"soon": 3 * sec, "in a moment": 7 * ms, "after rechecks": 23 * sec} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				r.occupy("a", ttl)
				h := r.lock(n.NewRLock("a"))
				r.justAfter(ttl)
				r.wantValid(h, r.now()+30*sec)
				r.unlock(h)
			})
		})
	}
}

func TestBubbleAWaiterSurvivesACrashedClientByItsLease(t *testing.T) {
	bubble(t, func(r *rig) {
		holder, n := r.node(rlock.Options{}), r.node(rlock.Options{})
		r.lock(holder.NewRLock("a"))
		w := r.waiting(n.NewRLock("a"))
		r.passTo(15 * sec)
		holder.net.disturb(holdRequest) // the last renewal was at 10 s
		o := <-w
		r.must(o.err)
		r.justAfter(40 * sec)
		r.unlock(o.hold)
	})
}

func TestBubbleAWaiterNoticesAVanishedKeyByTheRecheck(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		r.occupy("a", time.Hour)
		time.AfterFunc(ms, func() { r.vanish("a") })
		h := r.lock(n.NewRLock("a"))
		r.between(5*sec, 5500*ms)
		r.unlock(h)
	})
}

func TestBubbleAKeyWithoutATTLIsRechecked(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		r.occupy("a", time.Hour)
		r.must(r.admin.Persist(r.Context(), "a").Err())
		_, err := n.NewRLock("a").TryLock(r.Context(), 0)
		if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.RetryAfter != 0 {
			r.Errorf("error %v, want RetryAfter 0 for unknown", err)
		}
		time.AfterFunc(11*sec, func() { r.vanish("a") })
		h := r.lock(n.NewRLock("a"))
		r.between(11*sec, 16500*ms)
		r.unlock(h)
	})
}

func TestBubbleAReleaseWakesAWaiterAtOnce(t *testing.T) {
	for name, same := range map[string]bool{"of the same client": true, "of another client": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				holder := r.node(rlock.Options{})
				n := holder
				if !same {
					n = r.node(rlock.Options{})
				}
				h := r.lock(holder.NewRLock("a"))
				w := r.waiting(n.NewRLock("a"))
				r.passTo(1234 * ms)
				r.unlock(h)
				o := <-w
				r.must(o.err)
				r.at(1234 * ms)
				r.unlock(o.hold)
			})
		})
	}
}

// A release that reached subscribers wakes the own head by the message, which
// is given 5 ms.
func TestBubbleAnOwnReleaseWhoseMessageIsLostIsNoticedAfterFiveMilliseconds(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		w := r.waiting(n.NewRLock("a"))
		r.passTo(2 * sec)
		n.net.disturbNext(1, holdReply, "ping") // of 3 s, and all that follows on its connection
		r.passTo(4 * sec)
		r.unlock(h)
		o := <-w
		r.must(o.err)
		r.at(4*sec + 5*ms)
		r.unlock(o.hold)
	})
}

func TestBubbleAFixedLeaseOfTheOwnClientEndsForItsWaitersOnTime(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"), rlock.WithLease(12*sec))
		got := r.lock(n.NewRLock("a"))
		r.between(12*sec, 12*sec+5*ms)
		r.fails(h.Unlock(r.Context()), rlock.ErrLost)
		if r.owner() != got.Owner() {
			r.Errorf("the Unlock of a lost hold left the lock with %q", r.owner())
		}
		r.unlock(got)
	})
}

func TestBubbleAFixedLeaseThatVanishesIsNoticedByTheRecheck(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"), rlock.WithLease(time.Hour))
		w := r.waiting(n.NewRLock("a"))
		r.pass(sec)
		r.vanish("a")
		o := <-w
		r.must(o.err)
		r.between(5*sec, 6*sec)
		if err := h.Err(); !errors.Is(err, rlock.ErrLost) {
			r.Errorf("the hold whose lock another one has: %v", err)
		}
		r.unlock(o.hold)
	})
}

func TestBubbleWaitersForTheirOwnClientsHoldAskNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		ctx, cancel := context.WithCancel(r.Context())
		for range 100 {
			go r.waitIn(ctx, n)
		}
		synctest.Wait()
		n.net.forget()
		r.pass(time.Hour)
		if asked := n.net.sent("acquire", "release", "info", "subscribe"); len(asked) > 0 {
			r.Errorf("%d commands, the first %v", len(asked), asked[0])
		}
		if got, want := len(n.net.sent("renew")), 360; got != want {
			r.Errorf("%d renewals in an hour, want %d", got, want)
		}
		cancel()
		synctest.Wait()
		r.unlock(h)
		r.pass(sec)
		r.idle(n)
	})
}

// waitIn waits for the lock a until ctx is cancelled.
func (r *rig) waitIn(ctx context.Context, n *node) {
	_, err := n.NewRLock("a").Lock(ctx)
	r.fails(err, context.Canceled)
}

func TestBubbleAThousandWaitersSendOneCommandASecondAndCostNoGoroutine(t *testing.T) {
	bubble(t, func(r *rig) {
		holder, n := r.node(rlock.Options{}), r.node(rlock.Options{})
		h := r.lock(holder.NewRLock("a"))
		ctx, cancel := context.WithCancel(r.Context())
		go r.waitIn(ctx, n)
		synctest.Wait()
		one := len(goroutines())
		for range 999 {
			go r.waitIn(ctx, n)
		}
		synctest.Wait()
		n.net.forget()
		const window = 10 * time.Minute
		for range time.Hour / window {
			r.pass(window)
			if sent := n.net.sent(); len(sent) > int(window.Seconds()) {
				r.Errorf("at %v: %d commands in %v", r.now(), len(sent), window)
			}
			n.net.forget()
			// One more may be on its way to renew the holder's lease.
			if now := len(goroutines()); now > one+1 {
				r.Errorf("at %v: %d goroutines of the library for 1000 waiters, %d for one", r.now(), now, one)
			}
		}
		if one > 3 {
			r.Errorf("%d goroutines for one waiter, want those of the subscription's connection, 3", one)
		}
		cancel()
		synctest.Wait()
		r.unlock(h)
		r.pass(sec)
		r.idle(n, holder)
	})
}

func TestBubbleRechecksOfManyNamesStayWithinAHundredASecond(t *testing.T) {
	const names = 600
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		ctx, cancel := context.WithCancel(r.Context())
		for i := range names {
			r.occupy(fmt.Sprint("name", i), 24*time.Hour)
			go func() {
				_, err := n.NewRLock(fmt.Sprint("name", i)).Lock(ctx)
				r.fails(err, context.Canceled)
			}()
		}
		r.pass(7 * sec) // those that came first counted fewer names
		n.net.forget()
		const window = 20 * sec
		r.pass(window)
		attempts := n.net.sent("acquire")
		if most := int(window.Seconds()) * 100; len(attempts) > most {
			r.Errorf("%d attempts in %v, want at most %d", len(attempts), window, most)
		}
		last := make(map[string]time.Duration)
		for _, a := range attempts {
			name := a.args[0]
			if before, ok := last[name]; ok && (a.at-before < 6*sec || a.at-before > 6600*ms) {
				r.Fatalf("%s was asked %v after the attempt before, want 6s to 6.6s", name, a.at-before)
			}
			last[name] = a.at
		}
		if len(last) != names {
			r.Errorf("%d of %d names were asked", len(last), names)
		}
		if n.net.subscribers() != 1 {
			r.Errorf("%d connections for subscriptions, want 1", n.net.subscribers())
		}
		cancel()
		r.pass(sec)
		r.idle(n)
	})
}
