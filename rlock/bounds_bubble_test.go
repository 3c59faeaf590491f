package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// stage is where a wait is when the server falls silent.
type stage int

const (
	attempting stage = iota
	subscribing
	sleeping
	queued // behind another goroutine of the same client
)

// silence brings a client to a stage, with the lock taken for longer than any
// wait, and the server silent from there on.
func (s stage) silence(r *rig, n *node) {
	r.occupy("a", time.Hour)
	switch s {
	case attempting:
		n.net.disturb(holdRequest)
	case subscribing:
		n.net.disturb(holdRequest, "subscribe")
		time.AfterFunc(1, func() { n.net.disturb(holdRequest) })
	case sleeping:
		time.AfterFunc(1, func() { n.net.disturb(holdRequest) })
	case queued:
		n.net.disturb(holdRequest)
		head := r.goLock(func() (*rlock.Hold, error) { return n.NewRLock("a").TryLock(r.Context(), time.Hour) })
		r.pass(0)
		r.Cleanup(func() { r.mustFail(head) })
	}
}

// mustFail waits for the end of a Lock that the end of the test ends.
func (r *rig) mustFail(done <-chan outcome) {
	if o := <-done; o.err == nil {
		r.Error("a wait for a lock that is taken ended with a hold")
	}
}

func TestBubbleWaitsEndOnTimeWhateverTheServerDoes(t *testing.T) {
	why := errors.New("why it ended")
	bounds := map[string]struct {
		lock func(r *rig, l *rlock.RLock) (*rlock.Hold, error)
		ends time.Duration
		want []error // nil: the failure of Redis or, if it had answered before, ErrNotAcquired
	}{
		"TryLock's wait": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) { return l.TryLock(r.Context(), 7*sec) },
			ends: 7 * sec,
		},
		"a short wait": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) { return l.TryLock(r.Context(), 3*ms) },
			ends: 3 * ms,
		},
		"a wait longer than the lease": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
				return l.TryLock(r.Context(), 7*sec, rlock.WithLease(sec))
			},
			ends: 7 * sec,
		},
		"ctx's deadline": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
				ctx, cancel := context.WithTimeoutCause(r.Context(), 4*sec, why)
				defer cancel()
				return l.Lock(ctx)
			},
			ends: 4 * sec, want: []error{context.DeadlineExceeded, why},
		},
		"ctx's deadline before the wait's": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
				ctx, cancel := context.WithTimeoutCause(r.Context(), 4*sec, why)
				defer cancel()
				return l.TryLock(ctx, 5*sec)
			},
			ends: 4 * sec, want: []error{context.DeadlineExceeded, why},
		},
		"ctx's cancellation": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
				ctx, cancel := context.WithCancelCause(r.Context())
				time.AfterFunc(2*sec, func() { cancel(why) })
				return l.Lock(ctx)
			},
			ends: 2 * sec, want: []error{context.Canceled, why},
		},
		"ctx's cancellation in a long wait": {
			lock: func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
				ctx, cancel := context.WithCancelCause(r.Context())
				time.AfterFunc(13*sec, func() { cancel(why) })
				return l.TryLock(ctx, time.Hour)
			},
			ends: 13 * sec, want: []error{context.Canceled, why},
		},
	}
	stages := map[string]stage{
		"attempting": attempting, "subscribing": subscribing, "sleeping": sleeping, "queued": queued,
	}
	for bound, b := range bounds {
		for name, s := range stages {
			for timeouts, hooks := range map[string][]func(*redis.Options){"": nil, ", go-redis hangs": {never}} {
				t.Run(fmt.Sprintf("%s, %s%s", bound, name, timeouts), func(t *testing.T) {
					bubble(t, func(r *rig) {
						n := r.node(rlock.Options{}, hooks...)
						s.silence(r, n)
						h, err := b.lock(r, n.NewRLock("a"))
						r.at(b.ends)
						if h != nil {
							r.Fatal("a lock that is taken was acquired")
						}
						r.endedBy(err, s, b.want)
					})
				})
			}
		}
	}
}

// endedBy checks the error of a wait that ended at a stage.
func (r *rig) endedBy(err error, s stage, want []error) {
	r.Helper()
	silent := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case want != nil && silent: // the context's end, and that Redis had failed before
		r.fails(err, append(want, os.ErrDeadlineExceeded)...)
	case want != nil:
		r.fails(err, want...)
	case s != attempting && !silent: // the last answer counts: somebody else has the lock
		r.fails(err, rlock.ErrNotAcquired)
	default:
		r.fails(err, os.ErrDeadlineExceeded)
	}
}

func TestBubbleTryLockReturnsErrNotAcquiredWithTheTTL(t *testing.T) {
	for name, c := range map[string]struct{ wait, ttl, left time.Duration }{
		"one attempt":      {0, 90 * sec, 90 * sec},
		"a negative wait":  {-sec, 90 * sec, 90 * sec},
		"a wait":           {7 * sec, 90 * sec, 83 * sec},
		"a very short one": {ms, 90 * sec, 90*sec - ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				r.occupy("a", c.ttl)
				_, err := n.NewRLock("a").TryLock(r.Context(), c.wait)
				r.at(max(c.wait, 0))
				r.fails(err, rlock.ErrNotAcquired)
				// PTTL counts in whole milliseconds.
				if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.RetryAfter > c.left || failure.RetryAfter <= c.left-ms {
					r.Errorf("error %v, want RetryAfter %v", err, c.left)
				}
				r.pass(sec)
				r.idle(n)
			})
		})
	}
}

func TestBubbleRetryAfterOfTheOwnClientsHoldIsItsValidity(t *testing.T) {
	bubble(t, func(r *rig) {
		l := r.node(rlock.Options{}).NewRLock("a")
		h := r.lock(l, rlock.WithLease(20*sec))
		_, err := l.TryLock(r.Context(), 2*sec)
		r.at(2 * sec)
		r.fails(err, rlock.ErrNotAcquired)
		if failure, ok := errors.AsType[*rlock.LockError](err); !ok || failure.RetryAfter != 18*sec {
			r.Errorf("error %v, want RetryAfter 18s", err)
		}
		r.unlock(h)
	})
}

func TestBubbleOneAttemptIsWaitedForAThirdOfTheLease(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		n.net.disturb(holdRequest)
		_, err := n.NewRLock("a").TryLock(r.Context(), 0)
		r.at(10 * sec)
		r.fails(err, os.ErrDeadlineExceeded)

		ctx, cancel := context.WithTimeout(r.Context(), 4*sec)
		defer cancel()
		_, err = n.NewRLock("a").TryLock(ctx, 0)
		r.between(10*sec+4*sec/3, 10*sec+4*sec)
		if err == nil || errors.Is(err, rlock.ErrNotAcquired) {
			r.Errorf("TryLock: %v", err)
		}
	})
}

func TestBubbleAnEndedContextAsksNobody(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		why := errors.New("why it ended")
		ctx, cancel := context.WithCancelCause(r.Context())
		cancel(why)
		l := n.NewRLock("a")
		for _, lock := range []func() (*rlock.Hold, error){
			func() (*rlock.Hold, error) { return l.Lock(ctx) },
			func() (*rlock.Hold, error) { return l.TryLock(ctx, 0) },
			func() (*rlock.Hold, error) { return l.TryLock(ctx, sec) },
		} {
			_, err := lock()
			r.fails(err, context.Canceled, why)
		}
		r.idle(n)
	})
}

func TestBubbleTheLastAttemptComesJustBeforeTheDeadline(t *testing.T) {
	for name, lock := range map[string]func(r *rig, l *rlock.RLock) (*rlock.Hold, error){
		"TryLock": func(r *rig, l *rlock.RLock) (*rlock.Hold, error) { return l.TryLock(r.Context(), 2*sec) },
		"Lock": func(r *rig, l *rlock.RLock) (*rlock.Hold, error) {
			ctx, cancel := context.WithTimeout(r.Context(), 2*sec)
			defer cancel()
			return l.Lock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				r.occupy("a", time.Hour)
				time.AfterFunc(1500*ms, func() { r.vanish("a") })
				h, err := lock(r, n.NewRLock("a"))
				r.must(err)
				r.between(2*sec-5*ms, 2*sec-1)
				r.unlock(h)
			})
		})
	}
}

// A slow network needs more time for the last attempt: two round trips.
func TestBubbleTheLastAttemptLeavesTimeForItsRoundTrip(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		n.net.delay(100 * ms)
		r.occupy("a", time.Hour)
		time.AfterFunc(1500*ms, func() { r.vanish("a") })
		h, err := n.NewRLock("a").TryLock(r.Context(), 2*sec)
		r.must(err)
		r.between(1600*ms, 2*sec-1)
		r.unlock(h)
	})
}

func TestBubbleAQueuedWaiterBecomesHeadWhenItsHeadGivesUp(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		l := n.NewRLock("a")
		r.occupy("a", time.Hour)
		head := r.goLock(func() (*rlock.Hold, error) { return l.TryLock(r.Context(), 2*sec) })
		r.pass(0)
		second := r.goLock(func() (*rlock.Hold, error) { return l.TryLock(r.Context(), 4*sec) })
		r.pass(0)
		third := r.waiting(l)
		time.AfterFunc(3500*ms, func() { r.vanish("a") })
		first := <-head
		r.at(2 * sec)
		r.fails(first.err, rlock.ErrNotAcquired)
		o := <-second
		r.must(o.err)
		r.between(4*sec-5*ms, 4*sec-1) // its own last attempt
		r.pass(sec)
		r.unlock(o.hold)
		last := <-third
		r.must(last.err)
		r.unlock(last.hold)
		r.pass(sec)
		r.idle(n)
	})
}

func TestBubbleAWaitLongerThanTheLeaseGoesOn(t *testing.T) {
	bubble(t, func(r *rig) {
		holder, n := r.node(rlock.Options{}), r.node(rlock.Options{})
		h := r.lock(holder.NewRLock("a"))
		time.AfterFunc(8*sec, func() { r.unlock(h) })
		got, err := n.NewRLock("a").TryLock(r.Context(), 10*sec, rlock.WithLease(sec))
		r.must(err)
		r.at(8 * sec)
		r.wantValid(got, 9*sec)
		r.unlock(got)
	})
}
