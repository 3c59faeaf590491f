package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleAnInnerHoldIsWaitedForAtMostOptionsLease(t *testing.T) {
	why := errors.New("why it ended")
	for name, c := range map[string]struct {
		lock func(r *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error)
		ends time.Duration
		want []error
	}{
		"Lock": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) { return l.Lock(ctx) },
			12 * sec,
			[]error{rlock.ErrInnerHold},
		},
		"Lock with another lease": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
				return l.Lock(ctx, rlock.WithLease(sec))
			},
			12 * sec,
			[]error{rlock.ErrInnerHold},
		},
		"a longer wait": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
				return l.TryLock(ctx, time.Hour)
			},
			12 * sec,
			[]error{rlock.ErrInnerHold},
		},
		"a shorter wait": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) { return l.TryLock(ctx, 3*sec) },
			3 * sec,
			[]error{rlock.ErrInnerHold},
		},
		"no wait": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) { return l.TryLock(ctx, 0) },
			0,
			[]error{rlock.ErrInnerHold},
		},
		"ctx's deadline": {
			func(_ *rig, ctx context.Context, l *rlock.RLock) (*rlock.Hold, error) {
				ctx, cancel := context.WithTimeoutCause(ctx, 4*sec, why)
				defer cancel()
				return l.Lock(ctx)
			},
			4 * sec,
			[]error{context.DeadlineExceeded, why},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				l := r.node(rlock.Options{Lease: 12 * sec}).NewRLock("a")
				outer := r.lock(l)
				inside := outer.Context(r.Context())
				inner := r.lockIn(inside, l)
				since := time.Now()
				h, err := c.lock(r, inside, l) // from within inner: a goroutine that waits for itself
				r.at(c.ends)
				r.fails(err, c.want...)
				if h != nil {
					r.Error("two inner holds at once")
				}
				if errors.Is(err, rlock.ErrInnerHold) && !strings.Contains(err.Error(), since.Format(time.RFC3339)[:19]) {
					r.Errorf("error %q does not say since when the inner hold is open", err)
				}
				r.unlock(inner)
				r.unlock(r.lockIn(inside, l)) // the slot is free again
				r.unlock(outer)
				synctest.Wait()
			})
		})
	}
}

func TestBubbleASiblingTakesItsTurnWhenTheInnerHoldIsUnlocked(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		l := n.NewRLock("a")
		outer := r.lock(l)
		inside := outer.Context(r.Context())
		inner := r.lockIn(inside, l)
		sibling := r.goLock(func() (*rlock.Hold, error) { return l.TryLock(inside, 10*sec) })
		r.passTo(4 * sec)
		r.unlock(inner)
		o := <-sibling
		r.must(o.err)
		r.at(4 * sec)

		// An Unlock without an answer gives the turn back too.
		n.net.disturb(holdRequest, "release")
		r.unknown(o.hold.Unlock(r.Context()))
		r.at(9 * sec)
		last := r.lockIn(inside, l)
		r.at(9 * sec)
		n.net.heal()
		r.unlock(last)
		r.unlock(outer)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock", owner)
		}
	})
}
