package rlock_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

const sec = time.Second

// nesting is an outer hold from 0 s on, an inner one from 5 s on, and the
// unlocking of one of the two.
type nesting struct {
	outer, inner rlock.LockOption // nil: Options.Lease, 30 s
	inside       time.Duration    // ValidUntil at 5 s, after the re-entry
	unlockOuter  bool             // else the inner one is unlocked
	unlockAt     time.Duration
	after        time.Duration // ValidUntil then
	renewals     []time.Duration
	anyRenewals  bool          // do not look at renewals
	lost         time.Duration // of the remaining hold; 0: it lives on
}

var nestings = map[string]nesting{
	"fixed 60 in the watchdog's 30": {
		outer: nil, inner: rlock.WithLease(60 * sec), inside: 65 * sec,
		unlockAt: 12 * sec, after: 65 * sec, renewals: every(10*sec, 100*sec),
	},
	"fixed 2 in the watchdog's 30": {
		outer: nil, inner: rlock.WithLease(2 * sec), inside: 30 * sec,
		unlockAt: 12 * sec, after: 40 * sec, renewals: every(10*sec, 100*sec),
	},
	"fixed 60 in the watchdog's 30, which ends first": {
		outer: nil, inner: rlock.WithLease(60 * sec), inside: 65 * sec,
		unlockOuter: true, unlockAt: 12 * sec, after: 65 * sec, renewals: every(10*sec, 10*sec), lost: 65 * sec,
	},
	"fixed 2 in the watchdog's 30, which ends first": {
		outer: nil, inner: rlock.WithLease(2 * sec), inside: 30 * sec,
		unlockOuter: true, unlockAt: 12 * sec, after: 40 * sec, renewals: every(10*sec, 10*sec), lost: 40 * sec,
	},
	"the watchdog's 30 in fixed 10": {
		outer: rlock.WithLease(10 * sec), inner: nil, inside: 35 * sec,
		unlockAt: 20 * sec, after: 45 * sec, renewals: []time.Duration{15 * sec}, lost: 45 * sec,
	},
	"the watchdog's 30 in fixed 60": {
		outer: rlock.WithLease(60 * sec), inner: nil, inside: 60 * sec,
		unlockAt: 20 * sec, after: 60 * sec, renewals: []time.Duration{15 * sec}, lost: 60 * sec,
	},
	"the watchdog's 30 in fixed 60 for long": {
		outer: rlock.WithLease(60 * sec), inner: nil, inside: 60 * sec,
		unlockAt: 58 * sec, after: 85 * sec, renewals: []time.Duration{15 * sec, 25 * sec, 35 * sec, 45 * sec, 55 * sec}, lost: 85 * sec,
	},
	"the watchdog's 30 in fixed 10, which ends first": {
		outer: rlock.WithLease(10 * sec), inner: nil, inside: 35 * sec,
		unlockOuter: true, unlockAt: 7 * sec, after: 35 * sec,
		renewals: []time.Duration{15 * sec, 25 * sec, 35 * sec, 45 * sec, 55 * sec, 65 * sec, 75 * sec, 85 * sec, 95 * sec},
	},
	"fixed 5 in fixed 20": {
		outer: rlock.WithLease(20 * sec), inner: rlock.WithLease(5 * sec), inside: 20 * sec,
		unlockAt: 7 * sec, after: 20 * sec, lost: 20 * sec,
	},
	"fixed 20 in fixed 10": {
		outer: rlock.WithLease(10 * sec), inner: rlock.WithLease(20 * sec), inside: 25 * sec,
		unlockAt: 7 * sec, after: 25 * sec, lost: 25 * sec,
	},
	"fixed 20 in fixed 10, which ends first": {
		outer: rlock.WithLease(10 * sec), inner: rlock.WithLease(20 * sec), inside: 25 * sec,
		unlockOuter: true, unlockAt: 7 * sec, after: 25 * sec, lost: 25 * sec,
	},
	"the watchdog's 90 in its 30": {
		outer: nil, inner: rlock.WithWatchdog(90 * sec), inside: 95 * sec,
		unlockOuter: true, unlockAt: 7 * sec, after: 95 * sec, renewals: []time.Duration{35 * sec, 65 * sec, 95 * sec},
	},
	"the watchdog's 90 in its 30 ends first": {
		// How soon the renewals for the 30 begin is not stated.
		outer: nil, inner: rlock.WithWatchdog(90 * sec), inside: 95 * sec,
		unlockAt: 40 * sec, after: 125 * sec, anyRenewals: true,
	},
	"the watchdog's 9 in its 30": {
		outer: nil, inner: rlock.WithWatchdog(9 * sec), inside: 30 * sec,
		unlockAt: 25 * sec, after: 50 * sec, renewals: every(10*sec, 100*sec),
	},
}

func TestBubbleReentryNeverShortensTheLease(t *testing.T) {
	for name, c := range nestings {
		t.Run(name, func(t *testing.T) { bubble(t, c.run) })
	}
}

func (c nesting) run(r *rig) {
	n := r.node(rlock.Options{})
	l := n.NewRLock("a")
	outer := r.lock(l, c.outer)
	inside := outer.Context(r.Context())
	r.passTo(5 * sec)
	inner := r.lockIn(inside, l, c.inner)
	r.wantValid(outer, c.inside)
	r.wantValid(inner, c.inside)
	r.passTo(c.unlockAt)
	ends, stays := inner, outer
	if c.unlockOuter {
		ends, stays = outer, inner
	}
	r.unlock(ends)
	r.wantValid(stays, c.after)
	lost, ctx := stays.Lost(), stays.Context(r.Context())
	if c.lost == 0 {
		r.passTo(100 * sec)
		r.wantHeld(ctx, stays, lost)
		r.localNeverLater(stays)
	} else {
		r.passTo(c.lost - 1)
		r.wantHeld(ctx, stays, lost)
		r.localNeverLater(stays)
		<-time.After(1)
		r.wantLost(ctx, stays, lost)
		r.passTo(100 * sec)
	}
	if got := n.net.times("renew"); !c.anyRenewals && !slices.Equal(got, c.renewals) {
		r.Errorf("renewals at %v, want %v", got, c.renewals)
	}
}

// localNeverLater checks that the holder does not believe in a lease for longer
// than Redis keeps it. PTTL rounds to a millisecond.
func (r *rig) localNeverLater(h *rlock.Hold) {
	r.Helper()
	local, redis := r.validUntil(h), r.now()+r.ttl("a")+time.Millisecond/2
	if local > redis {
		r.Errorf("at %v the hold is valid until %v, and Redis keeps the lock until %v", r.now(), local, redis)
	}
}

func TestBubbleRenewalsStopWhenTheLastUnlockThatWantsThemIsCalled(t *testing.T) {
	for name, depth := range map[string]int{"outermost": 1, "inner": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				l := n.NewRLock("a")
				ctx := r.Context()
				if depth == 2 {
					ctx = r.lock(l, rlock.WithLease(50*sec)).Context(ctx)
				}
				wants := r.lockIn(ctx, l)
				r.passTo(20*sec - 1)
				n.net.forget()
				held := n.net.disturb(holdRequest, "release")
				time.AfterFunc(60*sec, held.drop)
				err := wants.Unlock(r.Context()) // at 20 s less 1 ns: the renewal is due in 1 ns
				r.fails(err, os.ErrDeadlineExceeded)
				r.passTo(time.Minute)
				if late := n.net.sent("renew"); len(late) > 0 {
					r.Errorf("renewals after the call of Unlock: %v", late)
				}
			})
		})
	}
}

func TestBubbleTheRestAreLostWhenTheTTLRunsOut(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		l := n.NewRLock("a")
		outer := r.lock(l, rlock.WithLease(5*sec))
		inner := r.lockIn(outer.Context(r.Context()), l)
		deep := r.lockIn(inner.Context(r.Context()), l, rlock.WithLease(sec))
		r.passTo(12 * sec)
		late := n.net.disturb(holdReply, "release")
		unlocked := make(chan error, 1)
		go func() { unlocked <- inner.Unlock(r.Context()) }()
		synctest.Wait()
		if inner.Err() == nil || outer.Err() != nil || deep.Err() != nil {
			r.Errorf("during the Unlock of the middle: %v, %v, %v", outer.Err(), inner.Err(), deep.Err())
		}
		r.wantValid(outer, 40*sec)
		r.pass(sec)
		late.lift()
		r.must(<-unlocked)
		lostOuter, insideOuter := outer.Lost(), outer.Context(r.Context())
		lostDeep, insideDeep := deep.Lost(), deep.Context(r.Context())
		r.passTo(40*sec - 1)
		r.wantHeld(insideOuter, outer, lostOuter)
		r.wantHeld(insideDeep, deep, lostDeep)
		<-time.After(1)
		r.wantLost(insideDeep, deep, lostDeep)
		r.wantLost(insideOuter, outer, lostOuter)
		if got := n.net.times("renew"); !slices.Equal(got, every(10*sec, 10*sec)) {
			r.Errorf("renewals at %v, want one at 10s", got)
		}
	})
}

func TestBubbleAFailedReentryLeavesTheOuterHoldAsItWas(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		l := n.NewRLock("a")
		outer := r.lock(l, rlock.WithLease(20*sec))
		inside := outer.Context(r.Context())
		silent := n.net.disturb(holdRequest, "acquire")
		_, err := l.TryLock(inside, 3*sec)
		r.at(3 * sec)
		r.fails(err, os.ErrDeadlineExceeded)
		r.wantValid(outer, 20*sec)
		n.net.forget()
		silent.lift() // its copies raise the TTL and the count now, for nobody
		r.passTo(20*sec - 1)
		if renewals := n.net.sent("renew"); len(renewals) > 0 || outer.Err() != nil {
			r.Errorf("renewals %v, the outer hold %v", renewals, outer.Err())
		}
		if got := r.validUntil(outer); got != 20*sec {
			r.Errorf("valid until %v, want 20s", got)
		}
		r.unlock(outer)
		if owner := r.owner(); owner != "" {
			r.Errorf("after the Unlock %q has the lock", owner)
		}
		r.idle(n)
	})
}

func TestBubbleReentriesEndOnTimeWithASilentServer(t *testing.T) {
	why := errors.New("why it ended")
	for name, c := range map[string]struct {
		wait, lease, deadline time.Duration
		ends                  time.Duration
		want                  []error
	}{
		"TryLock's wait":            {wait: 3 * sec, lease: 30 * sec, ends: 3 * sec, want: []error{os.ErrDeadlineExceeded}},
		"many sends, each bounded":  {wait: 7 * sec, lease: sec, ends: 7 * sec, want: []error{os.ErrDeadlineExceeded}},
		"a short wait":              {wait: 3 * ms, lease: sec, ends: 3 * ms, want: []error{os.ErrDeadlineExceeded}},
		"one attempt":               {lease: 3 * sec, ends: sec, want: []error{os.ErrDeadlineExceeded}},
		"ctx's deadline":            {wait: time.Hour, lease: sec, deadline: 5 * sec, ends: 5 * sec, want: []error{context.DeadlineExceeded, why}},
		"ctx's deadline, one send":  {wait: time.Hour, lease: 30 * sec, deadline: sec, ends: sec, want: []error{context.DeadlineExceeded, why}},
		"ctx's deadline, many more": {wait: time.Hour, lease: 200 * ms, deadline: sec, ends: sec, want: []error{context.DeadlineExceeded, why}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				l := n.NewRLock("a")
				ctx := r.lock(l, rlock.WithLease(time.Hour)).Context(r.Context())
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, c.deadline, why)
					defer cancel()
				}
				n.net.disturb(holdRequest, "acquire")
				_, err := l.TryLock(ctx, c.wait, rlock.WithLease(c.lease))
				r.at(c.ends)
				r.fails(err, c.want...)
			})
		})
	}
}

func TestBubbleReentryAfterALossIsALossAndNotANewLock(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		l := n.NewRLock("a")
		inside := context.WithoutCancel(r.lock(l, rlock.WithLease(5*sec)).Context(r.Context()))
		r.passTo(5 * sec)
		n.net.forget()
		_, err := l.Lock(inside)
		r.fails(err, rlock.ErrLost)
		_, err = l.TryLock(inside, sec)
		r.fails(err, rlock.ErrLost)
		r.at(5 * sec)
		if sent := n.net.sent(); len(sent) > 0 {
			r.Errorf("it sent %v", sent)
		}
	})
}
