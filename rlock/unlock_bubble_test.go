package rlock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// unknown checks the error of an Unlock that got no answer.
func (r *rig) unknown(err error, want ...error) {
	r.Helper()
	r.fails(err, append(want, os.ErrDeadlineExceeded)...)
	if err != nil && !strings.Contains(err.Error(), "outcome unknown") {
		r.Errorf("error %q does not say that the outcome is unknown", err)
	}
}

func TestBubbleUnlockIsBoundedByUnlockTimeoutAlone(t *testing.T) {
	for name, c := range map[string]struct {
		opts  rlock.Options
		takes time.Duration
	}{
		"by default 5 s":        {rlock.Options{}, 5 * sec},
		"Options.UnlockTimeout": {rlock.Options{UnlockTimeout: 1500 * ms}, 1500 * ms},
		"a very short one":      {rlock.Options{UnlockTimeout: 20 * ms}, 20 * ms},
	} {
		for fault, f := range map[string]fate{", requests lost": holdRequest, ", replies lost": holdReply} {
			for timeouts, hooks := range map[string][]func(*redis.Options){"": nil, ", go-redis hangs": {never}} {
				t.Run(name+fault+timeouts, func(t *testing.T) {
					bubble(t, func(r *rig) {
						n := r.node(c.opts, hooks...)
						h := r.lock(n.NewRLock("a"))
						r.passTo(9 * sec)
						n.net.disturb(f)
						ctx, cancel := context.WithTimeout(r.Context(), ms)
						defer cancel()
						err := h.Unlock(ctx)
						r.at(9*sec + c.takes)
						r.unknown(err)
						if got := n.net.sent("renew"); len(got) > 0 {
							r.Errorf("renewals during the Unlock: %v", got)
						}
						if err := h.Err(); !errors.Is(err, rlock.ErrNotHeld) || errors.Is(err, rlock.ErrLost) {
							r.Errorf("Err() after Unlock: %v", err)
						}
					})
				})
			}
		}
	}
}

func TestBubbleUnlockWorksOnAnEndedContext(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		slow := n.net.disturb(holdReply, "release")
		time.AfterFunc(sec, slow.lift)
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r.must(h.Unlock(ctx))
		r.at(sec)
		r.fails(h.Unlock(ctx), rlock.ErrNotHeld)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock", owner)
		}
	})
}

// One copy is waited for a third of UnlockTimeout, so a lost one costs no more.
func TestBubbleUnlockTriesAgain(t *testing.T) {
	for name, f := range map[string]fate{
		"the request is lost": holdRequest, "the reply is lost": holdReply,
		"the connection breaks": cut, "the connection breaks after it": cutReply,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{UnlockTimeout: 3 * sec}, never)
				h := r.lock(n.NewRLock("a"))
				n.net.disturbNext(1, f, "release")
				r.unlock(h)
				if f == cut || f == cutReply {
					r.between(5*ms, 10*ms)
				} else {
					r.between(sec+5*ms, sec+10*ms)
				}
				if owner := r.owner(); owner != "" {
					r.Errorf("%q has the lock", owner)
				}
				n.net.heal()
				r.idle(n)
			})
		})
	}
}

func TestBubbleTheBackgroundGoesOnReleasingUntilTheLeaseHasPassed(t *testing.T) {
	t.Run("the server comes back", func(t *testing.T) {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{})
			h := r.lock(n.NewRLock("a"))
			r.passTo(12 * sec) // renewed at 10 s
			silent := n.net.disturb(holdRequest)
			r.unknown(h.Unlock(r.Context()))
			r.passTo(20 * sec)
			if r.owner() == "" {
				r.Fatal("a release got through")
			}
			silent.drop()
			r.passTo(30 * sec) // its connection may have to time out, and pauses are a second
			if owner := r.owner(); owner != "" {
				r.Errorf("%q has the lock: the background has given up", owner)
			}
			r.unlock(h) // which learns of it
			r.idle(n)
		})
	})
	t.Run("the server stays away", func(t *testing.T) {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{})
			h := r.lock(n.NewRLock("a"))
			r.passTo(12 * sec)
			n.net.disturb(holdRequest, "release")
			r.unknown(h.Unlock(r.Context()))
			n.net.forget()
			r.passTo(40 * sec) // the end of the lease that was renewed at 10 s
			if tries := n.net.sent("release"); len(tries) < 3 {
				r.Errorf("only %v was sent in the background", tries)
			}
			r.pass(5*sec + ms) // the last one's time with go-redis
			r.idle(n)
		})
	})
}

func TestBubbleASecondUnlockTriesAgain(t *testing.T) {
	for name, f := range map[string]fate{"which was not executed": holdRequest, "which was": holdReply} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				h := r.lock(n.NewRLock("a"))
				silent := n.net.disturb(f, "release")
				r.unknown(h.Unlock(r.Context()))
				r.at(5 * sec)
				r.unknown(h.Unlock(r.Context()))
				r.at(10 * sec)
				silent.drop()
				r.unlock(h)
				r.at(10 * sec)
				if owner := r.owner(); owner != "" {
					r.Errorf("%q has the lock", owner)
				}
				r.fails(h.Unlock(r.Context()), rlock.ErrNotHeld)
				r.pass(5 * sec)
				r.idle(n)
			})
		})
	}
}

// From an Unlock without an answer on, local waiters go by Redis alone.
func TestBubbleALocalWaiterAsksRedisWhenAnUnlockGotNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		f         fate
		low, high time.Duration
	}{
		"released":                              {holdReply, 5 * sec, 5 * sec}, // UnlockTimeout
		"not released, the id is a predecessor": {holdRequest, 5 * sec, 5*sec + 5*ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				h := r.lock(n.NewRLock("a"))
				// Without a subscription no message can wake the waiter.
				n.net.disturb(holdRequest, "subscribe")
				w := r.waiting(n.NewRLock("a"))
				n.net.disturb(c.f, "release")
				r.unknown(h.Unlock(r.Context()))
				o := <-w
				r.must(o.err)
				r.between(c.low, c.high)
				n.net.heal()
				r.unlock(o.hold)
			})
		})
	}
}

// The waiter is woken only when its attempt can name the owner of which nobody
// knows whether it has the lock. Others ask about the hold at that instant, so
// that the Unlock has to wait between the steps that it takes then.
func TestBubbleAWaiterNamesAnUnknownUnlockAsItsPredecessor(t *testing.T) {
	for range 20 {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{}, never)
			h := r.lock(n.NewRLock("a"))
			n.net.disturb(holdRequest, "subscribe", "release")
			w := r.waiting(n.NewRLock("a"))
			var askers sync.WaitGroup
			for range 4 {
				askers.Go(func() {
					<-time.After(5 * sec)
					for range 3000 {
						h.ValidUntil()
					}
				})
			}
			r.unknown(h.Unlock(r.Context()))
			o := <-w
			r.must(o.err)
			r.between(5*sec, 5*sec+5*ms)
			askers.Wait()
		})
	}
}

func TestBubbleUnlockOfALostHoldSendsItsReleaseAndSaysSo(t *testing.T) {
	t.Run("answered", func(t *testing.T) {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{}, never)
			h := r.lock(n.NewRLock("a"))
			silent := n.net.disturb(holdReply, "renew") // which the server executes
			r.passTo(35 * sec)
			silent.drop()
			if r.owner() != h.Owner() {
				r.Fatal("Redis keeps the lock no longer: the test shows nothing")
			}
			r.fails(h.Unlock(r.Context()), rlock.ErrLost)
			r.at(35 * sec)
			if owner := r.owner(); owner != "" {
				r.Errorf("%q has the lock", owner)
			}
		})
	})
	t.Run("unanswered", func(t *testing.T) {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{}, never)
			h := r.lock(n.NewRLock("a"))
			n.net.disturb(holdRequest)
			r.passTo(35 * sec)
			err := h.Unlock(r.Context())
			r.between(35*sec, 40*sec)
			r.unknown(err, rlock.ErrLost)
		})
	})
	t.Run("lost during the Unlock", func(t *testing.T) {
		bubble(t, func(r *rig) {
			n := r.node(rlock.Options{}, never)
			h := r.lock(n.NewRLock("a"))
			r.vanish("a")
			r.fails(h.Unlock(r.Context()), rlock.ErrLost)
			if err := h.Err(); !errors.Is(err, rlock.ErrNotHeld) {
				r.Errorf("Err(): %v", err)
			}
		})
	})
}

func TestBubbleARefusedReleaseReturnsAtOnceAndTheNextTriesAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		refused := n.net.answerWith(-1, "-NOPERM this user has no permissions to run the 'evalsha' command\r\n", "release")
		err := h.Unlock(r.Context())
		r.at(0)
		if err == nil || strings.Contains(err.Error(), "outcome unknown") || errors.Is(err, rlock.ErrNotHeld) {
			r.Errorf("Unlock: %v, want the refusal of Redis", err)
		}
		n.net.forget()
		r.pass(12 * sec)
		if sent := n.net.sent(); len(sent) > 0 {
			r.Errorf("after the Unlock it sent %v", sent)
		}
		refused.lift()
		r.unlock(h)
		r.idle(n)
	})
}

// The commands of one owner go one at a time.
func TestBubbleUnlockEndsAnInnerLockThatIsUnderWay(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		l := n.NewRLock("a")
		outer := r.lock(l)
		n.net.disturb(holdReply, "acquire")
		inner := r.goLock(func() (*rlock.Hold, error) { return l.Lock(outer.Context(r.Context())) })
		r.passTo(2 * sec)
		r.unlock(outer)
		o := <-inner
		r.at(2 * sec)
		r.fails(o.err, context.Canceled, rlock.ErrNotHeld)
		n.net.heal()
		r.pass(sec)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock", owner)
		}
		r.idle(n)
	})
}

func TestBubbleUnlockBehindAnInnerLockThatGoesOnIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		l := n.NewRLock("a")
		outer := r.lock(l)
		n.net.disturb(holdReply, "acquire")
		inside := context.WithoutCancel(outer.Context(r.Context()))
		inner := r.goLock(func() (*rlock.Hold, error) { return l.Lock(inside) })
		r.passTo(2 * sec)
		r.unknown(outer.Unlock(r.Context()))
		r.at(7 * sec)
		o := <-inner
		r.at(10 * sec) // a third of the lease
		r.fails(o.err, os.ErrDeadlineExceeded)
		r.pass(ms)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock, which nobody holds", owner)
		}
		n.net.heal()
		r.unlock(outer)
		r.idle(n)
	})
}
