package rlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleShutdownWaitsForTheOpenHolds(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		l := n.NewRLock("a")
		h, fixed := r.lock(l), r.lock(n.NewRLock("b"), rlock.WithLease(70*sec))
		w := r.waiting(l)
		done := make(chan error, 1)
		go func() { done <- n.Shutdown(r.Context()) }()
		synctest.Wait()
		r.fails((<-w).err, rlock.ErrClosed)
		_, err := l.Lock(r.Context())
		r.fails(err, rlock.ErrClosed)
		_, err = l.TryLock(r.Context(), 0)
		r.fails(err, rlock.ErrClosed)
		r.at(0)

		r.passTo(45 * sec)
		r.wantValid(h, 70*sec) // renewed at 40 s
		inner := r.lockIn(h.Context(r.Context()), l)
		r.unlock(inner)
		r.passTo(50 * sec)
		r.unlock(h)
		synctest.Wait()
		if len(done) > 0 {
			r.Fatal("Shutdown returned although a hold is open")
		}
		r.must(<-done)
		r.at(70 * sec) // a loss is an end as well
		r.must(n.Shutdown(r.Context()))
		r.must(n.Close())
		r.fails(fixed.Unlock(r.Context()), rlock.ErrLost)
		r.idle(n)
	})
}

func TestBubbleAShutdownWhoseContextEndsGoesOnServingHolds(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		why := errors.New("the grace period is over")
		ctx, cancel := context.WithTimeoutCause(r.Context(), 3*sec, why)
		defer cancel()
		err := n.Shutdown(ctx)
		r.at(3 * sec)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) {
			r.Errorf("Shutdown: %v", err)
		}
		r.passTo(2 * time.Minute)
		r.wantValid(h, 2*time.Minute+30*sec)
		time.AfterFunc(sec, func() { r.unlock(h) })
		r.must(n.Shutdown(r.Context()))
		r.at(2*time.Minute + sec)
	})
}

func TestBubbleShutdownEndsAWaitWhateverItIsDoing(t *testing.T) {
	for name, s := range map[string]stage{
		"attempting": attempting, "subscribing": subscribing, "sleeping": sleeping, "queued": queued,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				// A hold that stays open keeps Shutdown from closing everything.
				r.lock(n.NewRLock("b"), rlock.WithLease(time.Minute))
				s.silence(r, n)
				w := r.goLock(func() (*rlock.Hold, error) { return n.NewRLock("a").Lock(r.Context()) })
				r.passTo(sec)
				done := make(chan error, 1)
				go func() { done <- n.Shutdown(r.Context()) }()
				o := <-w
				r.fails(o.err, rlock.ErrClosed)
				if o.at != sec {
					r.Errorf("the waiter was told at %v, want 1s", o.at)
				}
				r.must(<-done)
				r.between(time.Minute, time.Minute+5*sec) // and at most UnlockTimeout for commands under way
			})
		})
	}
}

func TestBubbleCloseEndsWhatIsOpenAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		l := n.NewRLock("a")
		h := r.lock(l)
		inside, lost := h.Context(r.Context()), h.Lost()
		w := r.waiting(l)
		sibling := r.waiting(n.NewRLock("a"))
		r.passTo(5 * sec)
		r.must(n.Close())
		r.at(5 * sec)
		r.wantLost(inside, h, lost)
		if !errors.Is(h.Err(), rlock.ErrClosed) || !errors.Is(context.Cause(inside), rlock.ErrClosed) {
			r.Errorf("the loss does not tell of the Close: %v", h.Err())
		}
		r.fails((<-w).err, rlock.ErrClosed)
		r.fails((<-sibling).err, rlock.ErrClosed)
		_, err := l.Lock(r.Context())
		r.fails(err, rlock.ErrClosed)
		r.idle(n) // not renewed
	})
}

func TestBubbleUnlockAfterCloseReleases(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		r.must(n.Close())
		if r.owner() != h.Owner() {
			r.Error("Close released the lock, which is left to its lease")
		}
		err := h.Unlock(r.Context())
		r.fails(err, rlock.ErrLost, rlock.ErrClosed)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock", owner)
		}
		r.idle(n)
	})
}

func TestBubbleCloseIsBoundedByUnlockTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		bound time.Duration
		hooks []func(*redis.Options)
	}{
		"2 s": {bound: 2 * sec}, "2 s, go-redis hangs": {2 * sec, []func(*redis.Options){never}},
		"20 ms": {bound: 20 * ms}, "20 ms, go-redis hangs": {20 * ms, []func(*redis.Options){never}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{UnlockTimeout: c.bound}, c.hooks...)
				h := r.lock(n.NewRLock("a"))
				r.occupy("b", time.Hour)
				w := r.waiting(n.NewRLock("b"))
				n.net.disturb(holdRequest)
				attempting := r.goLock(func() (*rlock.Hold, error) { return n.NewRLock("c").TryLock(r.Context(), time.Hour) })
				r.passTo(10*sec + ms) // a renewal is under way
				r.must(n.Close())
				r.between(10*sec+ms, 10*sec+ms+c.bound)
				for _, o := range []outcome{<-w, <-attempting} {
					if o.err == nil || o.at > 10*sec+ms {
						r.Errorf("a waiter ended at %v with %v", o.at, o.err)
					}
				}
				if !errors.Is(h.Err(), rlock.ErrLost) {
					r.Errorf("after Close: %v", h.Err())
				}
				from := r.now()
				r.must(n.Close())
				r.between(from, from+c.bound)
			})
		})
	}
}

func TestBubbleCloseReleasesWhatCommandsUnderWayAreGranted(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		slow := n.net.disturb(holdReply, "acquire")
		w := r.goLock(func() (*rlock.Hold, error) { return n.NewRLock("a").Lock(r.Context()) })
		r.passTo(sec)
		time.AfterFunc(2*sec, slow.lift)
		if r.owner() == "" {
			r.Fatal("not granted: the test shows nothing")
		}
		r.must(n.Close())
		r.at(3 * sec)
		o := <-w
		r.fails(o.err, rlock.ErrClosed)
		if o.at != sec {
			r.Errorf("the waiter was told at %v, want 1s", o.at)
		}
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock, which nobody holds", owner)
		}
		r.idle(n)
	})
}
