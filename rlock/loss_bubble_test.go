package rlock_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleValidUntilCountsFromBeforeTheSend(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		slow := n.net.disturb(holdReply, "acquire")
		time.AfterFunc(200*time.Millisecond, slow.lift)
		h := r.lock(n.NewRLock("a"))
		r.at(200 * time.Millisecond)
		r.wantValid(h, 30*time.Second)

		slow = n.net.disturb(holdReply, "renew")
		r.passTo(10*time.Second + 300*time.Millisecond)
		if got := r.validUntil(h); got != 30*time.Second {
			r.Errorf("before the renewal's answer: valid until %v", got)
		}
		slow.lift()
		synctest.Wait()
		r.wantValid(h, 40*time.Second)
		r.unlock(h)
		if got := r.validUntil(h); got != 40*time.Second {
			r.Errorf("after Unlock: valid until %v, want the last such time, 40s", got)
		}
	})
}

// wantLost checks every way to learn of a loss. It is called at the instant of
// the loss, when the timers may not have fired yet.
func (r *rig) wantLost(inside context.Context, h *rlock.Hold, lost <-chan struct{}) {
	r.Helper()
	if err := inside.Err(); !errors.Is(err, context.Canceled) {
		r.Errorf("at %v Context().Err(): %v", r.now(), err)
	}
	if !isClosed(inside.Done()) {
		r.Errorf("at %v Context().Done() is open", r.now())
	}
	if cause := context.Cause(inside); !errors.Is(cause, rlock.ErrLost) {
		r.Errorf("at %v the context's cause is %v, want ErrLost", r.now(), cause)
	}
	if err := h.Err(); !errors.Is(err, rlock.ErrLost) || !errors.Is(err, rlock.ErrNotHeld) {
		r.Errorf("at %v Err(): %v, want ErrLost, which is also ErrNotHeld", r.now(), err)
	}
	if !isClosed(lost) || !isClosed(h.Lost()) {
		r.Errorf("at %v Lost() is open", r.now())
	}
}

// wantHeld checks that nothing tells of a loss.
func (r *rig) wantHeld(inside context.Context, h *rlock.Hold, lost <-chan struct{}) {
	r.Helper()
	if err := errors.Join(h.Err(), inside.Err(), context.Cause(inside)); err != nil {
		r.Errorf("at %v the hold is over: %v", r.now(), err)
	}
	if isClosed(lost) || isClosed(inside.Done()) {
		r.Errorf("at %v Lost() or Context().Done() is closed", r.now())
	}
}

func TestBubbleLossComesExactlyOneLeaseAfterTheLastConfirmedRenewal(t *testing.T) {
	for name, c := range map[string]struct {
		opts  rlock.Options
		lock  []rlock.LockOption
		hooks []func(*redis.Options)
		fault func(n *network)
		after time.Duration // of the fault
		lost  time.Duration
	}{
		"requests are dropped": {
			fault: func(n *network) { n.disturb(holdRequest) }, after: 9 * time.Second, lost: 30 * time.Second,
		},
		"replies are dropped after a renewal": {
			fault: func(n *network) { n.disturb(holdReply) }, after: 11 * time.Second, lost: 40 * time.Second,
		},
		"a renewal hangs in go-redis": {
			hooks: []func(*redis.Options){never},
			fault: func(n *network) { n.disturb(holdReply) }, after: 25 * time.Second, lost: 50 * time.Second,
		},
		"connections break and are refused": {
			fault: func(n *network) { n.disturb(cut); n.refuse(syscall.ECONNREFUSED) }, after: 61 * time.Second, lost: 90 * time.Second,
		},
		"the server answers with errors": {
			fault: func(n *network) { n.answerWith(-1, "-LOADING Redis is loading\r\n", "renew") },
			after: 15 * time.Second, lost: 40 * time.Second,
		},
		"Options.Lease": {
			opts: rlock.Options{Lease: 3 * time.Second}, hooks: []func(*redis.Options){never},
			fault: func(n *network) { n.disturb(holdRequest) }, after: 1500 * time.Millisecond, lost: 4 * time.Second,
		},
		"WithWatchdog": {
			lock:  []rlock.LockOption{rlock.WithWatchdog(6 * time.Second)},
			fault: func(n *network) { n.disturb(holdRequest) }, after: 5 * time.Second, lost: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(c.opts, c.hooks...)
				h := r.lock(n.NewRLock("a"), c.lock...)
				lost, inside := h.Lost(), h.Context(r.Context())
				r.passTo(c.after)
				c.fault(n.net)
				r.passTo(c.lost - 1)
				r.wantHeld(inside, h, lost)
				<-time.After(1)
				r.wantLost(inside, h, lost)
				r.at(c.lost)
			})
		})
	}
}

func TestBubbleLossIsToldAtOnceWhenARenewalFindsTheLockGone(t *testing.T) {
	for name, remove := range map[string]func(r *rig){
		"deleted":           func(r *rig) { r.vanish("a") },
		"taken":             func(r *rig) { r.vanish("a"); r.occupy("a", time.Hour) },
		"of another type":   func(r *rig) { r.must(r.admin.Set(r.Context(), "a", "x", 0).Err()) },
		"ForceUnlock there": func(r *rig) { r.forceUnlock(r.node(rlock.Options{}), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				h := r.lock(r.node(rlock.Options{}).NewRLock("a"))
				lost, inside := h.Lost(), h.Context(r.Context())
				r.passTo(11 * time.Second)
				remove(r)
				r.passTo(20*time.Second - 1)
				r.wantHeld(inside, h, lost)
				r.pass(1)
				r.wantLost(inside, h, lost)
			})
		})
	}
}

func (r *rig) forceUnlock(n *node, name string) {
	r.Helper()
	freed, err := n.NewRLock(name).ForceUnlock(r.Context())
	r.must(err)
	if !freed {
		r.Error("ForceUnlock found nothing to free")
	}
}

func TestBubbleForceUnlockTellsAHolderOfTheSameClientAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		lost, inside := h.Lost(), h.Context(r.Context())
		r.forceUnlock(n, "a")
		r.wantLost(inside, h, lost)
		r.at(0)
	})
}

func TestBubbleLateRenewalRevivesNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		h := r.lock(n.NewRLock("a"))
		lost, inside := h.Lost(), h.Context(r.Context())
		late := n.net.disturb(holdReply, "renew")
		r.passTo(31 * time.Second)
		r.wantLost(inside, h, lost)
		if r.ttl("a") == 0 {
			r.Fatal("no renewal was executed: the test shows nothing")
		}
		until := r.validUntil(h)
		late.lift()
		r.pass(time.Second)
		r.wantLost(inside, h, lost)
		if got := r.validUntil(h); got > until || until != 30*time.Second {
			r.Errorf("valid until %v, then %v; want 30s for ever", until, got)
		}
		r.fails(h.Renew(r.Context(), time.Minute), rlock.ErrLost)
		r.fails(h.Unlock(r.Context()), rlock.ErrLost)
		if owner := r.owner(); owner != "" {
			r.Errorf("Unlock of a lost hold sent no release: %q has it", owner)
		}
	})
}

// A stopped process fires its timers late. The only timer of a fixed lease is
// taken away here: each method has to find out by itself.
func TestBubbleLossIsToldByTheClockWhenNoTimerFires(t *testing.T) {
	for name, tells := range map[string]func(h *rlock.Hold, inside context.Context) bool{
		"Err":            func(h *rlock.Hold, _ context.Context) bool { return errors.Is(h.Err(), rlock.ErrLost) },
		"Lost":           func(h *rlock.Hold, _ context.Context) bool { return isClosed(h.Lost()) },
		"Context().Err":  func(_ *rlock.Hold, inside context.Context) bool { return inside.Err() != nil },
		"Context().Done": func(_ *rlock.Hold, inside context.Context) bool { return isClosed(inside.Done()) },
		"derived Err": func(_ *rlock.Hold, inside context.Context) bool {
			derived, cancel := context.WithCancel(inside)
			defer cancel()
			return derived.Err() != nil
		},
		"HoldFrom": func(h *rlock.Hold, inside context.Context) bool {
			_, ok := rlock.LockOf(h).HoldFrom(inside)
			return !ok
		},
		"re-entry": func(h *rlock.Hold, inside context.Context) bool {
			_, err := rlock.LockOf(h).Lock(context.WithoutCancel(inside))
			return errors.Is(err, rlock.ErrLost)
		},
		"Renew": func(h *rlock.Hold, inside context.Context) bool {
			return errors.Is(h.Renew(context.WithoutCancel(inside), time.Minute), rlock.ErrLost)
		},
		"Unlock": func(h *rlock.Hold, inside context.Context) bool {
			return errors.Is(h.Unlock(inside), rlock.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				h := r.lock(r.node(rlock.Options{}).NewRLock("a"), rlock.WithLease(5*time.Second))
				inside := h.Context(r.Context())
				rlock.StallExpiry(h)
				r.passTo(5*time.Second - 1)
				if err := errors.Join(h.Err(), inside.Err()); err != nil {
					r.Errorf("told before the lease has run out: %v", err)
				}
				r.pass(1)
				if !tells(h, inside) {
					r.Error("not told although the lease has run out")
				}
			})
		})
	}
}

func TestBubbleContextSaysWhyItEnded(t *testing.T) {
	bubble(t, func(r *rig) {
		l := r.node(rlock.Options{}).NewRLock("a")
		unlocked := r.lock(l)
		inside := unlocked.Context(r.Context())
		lost := unlocked.Lost()
		r.unlock(unlocked)
		if cause := context.Cause(inside); !errors.Is(cause, rlock.ErrNotHeld) || errors.Is(cause, rlock.ErrLost) {
			r.Errorf("after Unlock the cause is %v, want ErrNotHeld and not ErrLost", cause)
		}
		if isClosed(lost) {
			r.Error("Unlock closed Lost()")
		}

		h := r.lock(l)
		why := errors.New("the parent has ended")
		parent, cancel := context.WithCancelCause(r.Context())
		first, second := h.Context(parent), h.Context(r.Context())
		cancel(why)
		if cause := context.Cause(first); !errors.Is(cause, why) {
			r.Errorf("after the parent's end the cause is %v", cause)
		}
		if second.Err() != nil || h.Err() != nil {
			r.Error("the parent's end ended the hold, or another context of it")
		}
		r.unlock(h)
		if cause := context.Cause(first); !errors.Is(cause, why) {
			r.Errorf("Unlock changed the cause to %v", cause)
		}
		if over := h.Context(r.Context()); over.Err() == nil || !errors.Is(context.Cause(over), rlock.ErrNotHeld) {
			r.Errorf("a context of a hold that is over: %v", context.Cause(over))
		}
	})
}

func TestBubbleDoTellsOfALossWhileItRan(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{Lease: 6 * time.Second})
		err := n.NewRLock("a").Do(r.Context(), func(ctx context.Context) error {
			n.net.disturb(holdRequest, "renew")
			<-ctx.Done()
			r.at(6 * time.Second)
			if !errors.Is(context.Cause(ctx), rlock.ErrLost) {
				r.Errorf("fn's context ended with %v", context.Cause(ctx))
			}
			return nil
		})
		r.fails(err, rlock.ErrLost)
	})
}
