package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

const ms = time.Millisecond

// predecessors returns the owner ids that an acquire says it may replace.
func (c command) predecessors() []string { return c.args[5:] }

// deadline returns until when an acquire may be executed, since the start of
// the test, by the server's clock.
func (c command) deadline(r *rig) time.Duration {
	n, err := strconv.ParseInt(c.args[4], 10, 64)
	r.must(err)
	return time.UnixMilli(n).Sub(r.start)
}

func TestBubbleAGrantThatArrivesAfterItsLeaseIsNotAHold(t *testing.T) {
	for name, c := range map[string]struct{ lease, reply time.Duration }{
		"at the instant":        {50 * ms, 50 * ms}, // a send is waited for until then
		"an instant before":     {50 * ms, 50*ms - 1},
		"after":                 {50 * ms, 70 * ms},
		"after a longer lease":  {900 * ms, 1200 * ms},
		"within the lease, but": {900 * ms, 500 * ms}, // after a third of it
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				late := n.net.disturbNext(1, holdReply, "acquire")
				time.AfterFunc(c.reply, late.lift)
				h, err := n.NewRLock("a").TryLock(r.Context(), 3*sec, rlock.WithLease(c.lease))
				r.must(err)
				attempts := n.net.sent("acquire")
				if inTime := c.reply < max(c.lease/3, min(c.lease, 100*ms)); inTime {
					r.at(c.reply)
					if got := r.validUntil(h); got != c.lease {
						r.Errorf("valid until %v, want %v", got, c.lease)
					}
					return
				}
				if len(attempts) != 2 || attempts[0].owner() == attempts[1].owner() || h.Owner() != attempts[1].owner() {
					r.Fatalf("attempts %v, hold of %s: want a second one with an id of its own", attempts, h.Owner())
				}
				if got, want := r.validUntil(h), attempts[1].at+c.lease; got != want {
					r.Errorf("valid until %v, want %v", got, want)
				}
				if r.owner() != h.Owner() {
					r.Errorf("Redis says that %q has the lock", r.owner())
				}
				r.unlock(h)
				r.pass(5 * sec)
				if owner := r.owner(); owner != "" {
					r.Errorf("%q is left", owner)
				}
				r.idle(n)
			})
		})
	}
}

// A third of the whole wait at most, and of the lease; at least 100 ms.
func TestBubbleALostReplyLeavesTimeForAnotherAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		wait  time.Duration
		lock  rlock.LockOption
		first time.Duration // how long the first send is waited for
	}{
		"a third of the wait":        {3 * sec, nil, sec},
		"a third of the lease":       {time.Hour, rlock.WithLease(6 * sec), 2 * sec},
		"a third of Options.Lease":   {time.Hour, nil, 10 * sec},
		"100 ms though the wait is":  {150 * ms, nil, 100 * ms},
		"100 ms though the lease is": {time.Minute, rlock.WithLease(120 * ms), 100 * ms},
	} {
		for _, f := range []fate{holdRequest, holdReply} {
			t.Run(fmt.Sprintf("%s, fate %d", name, f), func(t *testing.T) {
				bubble(t, func(r *rig) {
					n := r.node(rlock.Options{}, never)
					n.net.disturbNext(1, f, "acquire")
					h, err := n.NewRLock("a").TryLock(r.Context(), c.wait, c.lock)
					r.must(err)
					r.between(c.first, c.first+10*ms) // the first pause
					sent := n.net.sent("acquire")
					if len(sent) != 2 {
						r.Fatalf("attempts %v, want two", sent)
					}
					if sent[0].owner() == sent[1].owner() || h.Owner() != sent[1].owner() {
						r.Errorf("ids %s and %s, the hold's %s", sent[0].owner(), sent[1].owner(), h.Owner())
					}
					if got := sent[1].predecessors(); !slices.Equal(got, []string{sent[0].owner()}) {
						r.Errorf("predecessors %v, want the first attempt", got)
					}
					if got := sent[0].deadline(r); got != c.first {
						r.Errorf("the first copy's deadline is %v, want %v", got, c.first)
					}
				})
			})
		}
	}
}

// withdrawn makes a TryLock whose context ends after 100 ms. Its one send would
// be waited for until 1 s.
func (r *rig) withdrawn(n *node) {
	r.Helper()
	cause := errors.New("nobody wants it any more")
	ctx, cancel := context.WithCancelCause(r.Context())
	time.AfterFunc(100*ms, func() { cancel(cause) })
	_, err := n.NewRLock("a").TryLock(ctx, 3*sec)
	r.at(100 * ms)
	r.fails(err, context.Canceled, cause)
}

func TestBubbleAGhostIsSweptAtItsDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		n.net.disturb(holdReply, "acquire")
		r.withdrawn(n)
		r.passTo(sec)
		if r.owner() == "" {
			r.Fatal("swept before the deadline, or never granted")
		}
		r.passTo(sec + ms)
		if owner := r.owner(); owner != "" {
			r.Errorf("1 ms past the deadline %q has the lock, which nobody holds", owner)
		}
		n.net.heal()
		r.idle(n)
	})
}

func TestBubbleAGhostIsSweptWhenItsAnswerComes(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		slow := n.net.disturb(holdReply, "acquire")
		r.withdrawn(n)
		r.passTo(500 * ms)
		slow.lift()
		r.pass(0)
		if owner := r.owner(); owner != "" {
			r.Errorf("after the answer %q has the lock, which nobody holds", owner)
		}
		r.idle(n)
	})
}

func TestBubbleAGhostIsReplacedAtOnceByTheNextAttempt(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		lost := n.net.disturb(holdReply, "acquire")
		r.withdrawn(n)
		lost.drop()
		h, err := n.NewRLock("a").TryLock(r.Context(), 0)
		r.must(err)
		r.at(100 * ms)
		r.passTo(5 * sec) // past the sweep
		if r.owner() != h.Owner() || h.Err() != nil {
			r.Errorf("Redis says that %q has the lock of %s; the hold: %v", r.owner(), h.Owner(), h.Err())
		}
		r.unlock(h)
		r.idle(n)
	})
}

func TestBubbleACopyThatArrivesAfterItsDeadlineIsRefused(t *testing.T) {
	for name, arrives := range map[string]time.Duration{
		"in time: granted, and released when the answer comes": 900 * ms,
		"at the deadline": sec,
		"1 ms past it":    sec + ms,
		"long past it":    20 * sec,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				late := n.net.disturb(holdRequest, "acquire")
				r.withdrawn(n)
				r.passTo(arrives)
				late.lift()
				r.pass(2 * ms)
				if owner := r.owner(); owner != "" {
					r.Errorf("%q has the lock, which nobody holds", owner)
				}
				r.idle(n)
			})
		})
	}
}

func TestBubbleACopyOfAnAbandonedRequestIsExecutedAndNotAnswered(t *testing.T) {
	bubble(t, func(r *rig) {
		// go-redis gives the connection up after a second, with the request
		// still on its way: the answer finds nobody.
		n := r.node(rlock.Options{Lease: 9 * sec})
		late := n.net.disturbNext(1, holdRequest, "acquire")
		ctx, cancel := context.WithTimeout(r.Context(), 2700*ms)
		defer cancel()
		other := n.net.disturb(cut, "acquire")
		_, err := n.NewRLock("a").Lock(ctx)
		r.at(2700 * ms)
		r.fails(err, context.DeadlineExceeded)
		other.lift()
		late.lift()
		r.passTo(20 * sec)
		if owner := r.owner(); owner != "" {
			r.Errorf("%q has the lock, which nobody holds", owner)
		}
		r.idle(n)
	})
}

// The server's clock is an hour ahead: what it refuses as late tells the client.
func TestBubbleARefusalAsLateIsSentAgainByTheServersClock(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		theirs := time.Now().Add(time.Hour)
		n.net.answerWith(1, fmt.Sprintf("*3\r\n:2\r\n:0\r\n:%d\r\n", theirs.UnixMilli()), "acquire")
		h, err := n.NewRLock("a").TryLock(r.Context(), 3*sec)
		r.must(err)
		r.at(0)
		sent := n.net.sent("acquire")
		if len(sent) != 2 || sent[0].owner() != sent[1].owner() || h.Owner() != sent[0].owner() {
			r.Fatalf("attempts %v, want the same one twice", sent)
		}
		if got := sent[1].deadline(r); got < time.Hour+sec || got > time.Hour+sec+ms {
			r.Errorf("the second copy's deadline is %v, want 1s past the server's clock of 1h", got)
		}
	})
}

// Both copies of an attempt have to be answered within the wait.
func TestBubbleARefusalAsLateDoesNotProlongTheWait(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		n.net.delay(300 * ms)
		// A second goes by with the first attempt. Each of the next takes two round
		// trips, and the last has time for one.
		n.net.disturbNext(1, holdRequest, "acquire")
		n.net.answerWith(-1, "*3\r\n:2\r\n:0\r\n:4102444800000\r\n", "acquire")
		_, err := n.NewRLock("a").TryLock(r.Context(), 3*sec)
		r.at(3 * sec)
		if err == nil {
			r.Error("a lock that no server granted")
		}
	})
}
