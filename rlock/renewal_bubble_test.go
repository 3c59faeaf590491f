package rlock_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// every returns the multiples of d up to end, from d on.
func every(d, end time.Duration) []time.Duration {
	var at []time.Duration
	for t := d; t <= end; t += d {
		at = append(at, t)
	}
	return at
}

func TestBubbleRenewalsGoOutAtTheirInterval(t *testing.T) {
	for name, c := range map[string]struct {
		opts            rlock.Options
		lock            []rlock.LockOption
		interval, lease time.Duration
	}{
		"by default a third of 30 s": {interval: 10 * time.Second, lease: 30 * time.Second},
		"a third of Options.Lease": {
			opts: rlock.Options{Lease: 900 * time.Millisecond}, interval: 300 * time.Millisecond, lease: 900 * time.Millisecond,
		},
		"Options.RenewEvery": {
			opts: rlock.Options{RenewEvery: 4 * time.Second}, interval: 4 * time.Second, lease: 30 * time.Second,
		},
		"half of the lease": {
			opts: rlock.Options{RenewEvery: 15 * time.Second}, interval: 15 * time.Second, lease: 30 * time.Second,
		},
		"WithWatchdog": {
			lock: []rlock.LockOption{rlock.WithWatchdog(6 * time.Second)}, interval: 2 * time.Second, lease: 6 * time.Second,
		},
		"WithWatchdog in the proportion of RenewEvery to Lease": {
			opts: rlock.Options{RenewEvery: 5 * time.Second},
			lock: []rlock.LockOption{rlock.WithWatchdog(time.Minute)}, interval: 10 * time.Second, lease: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(c.opts)
				h := r.lock(n.NewRLock("a"), c.lock...)
				r.wantValid(h, c.lease)
				r.passTo(10 * c.interval)
				r.wantValid(h, 10*c.interval+c.lease)
				if got, want := n.net.times("renew"), every(c.interval, 10*c.interval); !slices.Equal(got, want) {
					r.Errorf("renewals at %v, want %v", got, want)
				}
				r.unlock(h)
				r.idle(n)
			})
		})
	}
}

func TestBubbleOneFailedRenewalLosesNothing(t *testing.T) {
	for name, f := range map[string]fate{
		"the request is lost": holdRequest, "the reply is lost": holdReply,
		"the connection breaks": cut, "the connection breaks after it": cutReply,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				// The fewest that Options allow: two renewals in a lease.
				n := r.node(rlock.Options{RenewEvery: 15 * time.Second}, never)
				h := r.lock(n.NewRLock("a"))
				n.net.disturbNext(1, f, "renew")
				r.passTo(30*time.Second - 1)
				if err := h.Err(); err != nil || r.validUntil(h) <= 30*time.Second {
					r.Errorf("valid until %v, %v", r.validUntil(h), err)
				}
				if again := n.net.times("renew"); again[0] != 15*time.Second || len(again) != 2 {
					r.Errorf("renewals at %v, want one at 15s and another soon after", again)
				}
				r.unlock(h)
			})
		})
	}
}

func TestBubbleFixedLeaseEndsExactlyAndCostsNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		slow := n.net.disturb(holdReply, "acquire")
		time.AfterFunc(300*time.Millisecond, slow.lift)
		h := r.lock(n.NewRLock("a"), rlock.WithLease(5*time.Second))
		lost, inside := h.Lost(), h.Context(r.Context())
		r.wantValid(h, 5*time.Second)
		n.net.forget()
		r.passTo(5*time.Second - 1)
		r.wantHeld(inside, h, lost)
		<-time.After(1)
		r.wantLost(inside, h, lost)
		if sent := n.net.sent(); len(sent) > 0 {
			r.Errorf("a fixed lease sent %v", sent)
		}
		r.fails(h.Unlock(r.Context()), rlock.ErrLost)
		r.idle(n)
	})
}

func TestBubbleLeasesCountInWholeMilliseconds(t *testing.T) {
	const odd = 1999 * time.Microsecond
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{Lease: odd + time.Second})
		r.wantValid(r.lock(n.NewRLock("a"), rlock.WithLease(odd)), time.Millisecond)
		r.wantValid(r.lock(n.NewRLock("b"), rlock.WithWatchdog(odd+time.Second)), 1001*time.Millisecond)
		r.wantValid(r.lock(n.NewRLock("c")), 1001*time.Millisecond)
		h := r.lock(n.NewRLock("d"), rlock.WithLease(time.Millisecond))
		r.must(h.Renew(r.Context(), odd+5*time.Second))
		r.wantValid(h, 5001*time.Millisecond)
	})
}

func TestBubbleRenewExtendsAndNeverShortens(t *testing.T) {
	for name, c := range map[string]struct {
		lock         rlock.LockOption
		at, renew    time.Duration
		after, until time.Duration // ValidUntil after the call, and the loss
	}{
		"extends a fixed lease":         {rlock.WithLease(5 * time.Second), 3 * time.Second, 10 * time.Second, 13 * time.Second, 13 * time.Second},
		"a shorter one changes nothing": {rlock.WithLease(5 * time.Second), 3 * time.Second, time.Second, 5 * time.Second, 5 * time.Second},
		"in the last moment":            {rlock.WithLease(5 * time.Second), 4998 * time.Millisecond, 5 * time.Second, 9998 * time.Millisecond, 9998 * time.Millisecond},
		"watched, longer":               {nil, 3 * time.Second, 2 * time.Minute, 123 * time.Second, 0},
		"watched, shorter":              {nil, 3 * time.Second, time.Second, 30 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				h := r.lock(n.NewRLock("a"), c.lock)
				r.passTo(c.at)
				slow := n.net.disturb(holdReply, "renew")
				reply := time.AfterFunc(time.Millisecond, slow.lift)
				r.must(h.Renew(r.Context(), c.renew))
				reply.Stop()
				r.wantValid(h, c.after)
				if c.until == 0 {
					r.passTo(20 * time.Minute)
					r.wantValid(h, 20*time.Minute+30*time.Second)
					r.unlock(h)
					return
				}
				lost, inside := h.Lost(), h.Context(r.Context())
				r.passTo(c.until - 1)
				r.wantHeld(inside, h, lost)
				<-time.After(1)
				r.wantLost(inside, h, lost)
				r.fails(h.Renew(r.Context(), time.Minute), rlock.ErrLost)
			})
		})
	}
}

func TestBubbleRenewOfAVanishedLockIsALoss(t *testing.T) {
	bubble(t, func(r *rig) {
		h := r.lock(r.node(rlock.Options{}).NewRLock("a"), rlock.WithLease(5*time.Second))
		lost, inside := h.Lost(), h.Context(r.Context())
		r.vanish("a")
		r.fails(h.Renew(r.Context(), time.Minute), rlock.ErrLost)
		r.wantLost(inside, h, lost)
		r.at(0)
	})
}

func TestBubbleRenewWithoutAnAnswerChangesNothing(t *testing.T) {
	cause := errors.New("the request was withdrawn")
	for name, c := range map[string]struct {
		ctx   func(parent context.Context) (context.Context, context.CancelFunc)
		takes time.Duration
		want  []error
	}{
		"a deadline": {
			ctx: func(parent context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(parent, 3*time.Second, cause)
			},
			takes: 3 * time.Second, want: []error{context.DeadlineExceeded, cause},
		},
		"cancelled": {
			ctx: func(parent context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(parent)
				time.AfterFunc(2*time.Second, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			},
			takes: 2 * time.Second, want: []error{context.Canceled, cause},
		},
		"unbounded": {
			ctx:   func(parent context.Context) (context.Context, context.CancelFunc) { return parent, func() {} },
			takes: 10 * time.Second, // a third of Options.Lease, which is shorter than what is asked for
			want:  []error{os.ErrDeadlineExceeded},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				h := r.lock(n.NewRLock("a"), rlock.WithLease(50*time.Second))
				n.net.disturb(holdRequest, "renew")
				ctx, cancel := c.ctx(r.Context())
				defer cancel()
				err := h.Renew(ctx, time.Minute)
				r.at(c.takes)
				for _, want := range c.want {
					if !errors.Is(err, want) {
						r.Errorf("Renew: %v, want %v", err, want)
					}
				}
				r.wantValid(h, 50*time.Second)
			})
		})
	}
}

func TestBubbleRenewTriesAgainWithinItsDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		h := r.lock(n.NewRLock("a"), rlock.WithLease(5*time.Second))
		n.net.disturbNext(1, holdReply, "renew")
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		r.must(h.Renew(ctx, time.Minute))
		r.between(time.Second, time.Second+10*time.Millisecond)
		r.wantValid(h, r.now()+time.Minute)
	})
}

func TestBubbleRenewThatOutlivesTheHoldRevivesNothing(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		h := r.lock(n.NewRLock("a"), rlock.WithLease(5*time.Second))
		lost, inside := h.Lost(), h.Context(r.Context())
		late := n.net.disturb(holdReply, "renew")
		time.AfterFunc(6*time.Second, late.lift)
		r.fails(h.Renew(r.Context(), time.Minute), rlock.ErrLost)
		r.at(6 * time.Second)
		r.wantLost(inside, h, lost)
		if got := r.validUntil(h); got != 5*time.Second {
			r.Errorf("valid until %v, want 5s", got)
		}
	})
}
