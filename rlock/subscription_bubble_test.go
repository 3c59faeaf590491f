package rlock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleALateConfirmationIsFollowedByAnAttemptAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		late := n.net.disturb(holdRequest, "subscribe")
		r.occupy("a", time.Hour)
		time.AfterFunc(250*ms, func() { r.vanish("a") })
		time.AfterFunc(500*ms, late.lift)
		h := r.lock(n.NewRLock("a"))
		r.at(500 * ms)
		r.unlock(h)
	})
}

// The server has subscribed, and only its word is late: then the message of the
// release comes behind it.
func TestBubbleAReleaseBeforeALateConfirmationIsNotLost(t *testing.T) {
	bubble(t, func(r *rig) {
		holder, n := r.node(rlock.Options{}), r.node(rlock.Options{})
		late := n.net.disturb(holdReply, "subscribe")
		h := r.lock(holder.NewRLock("a"))
		w := r.waiting(n.NewRLock("a"))
		time.AfterFunc(250*ms, func() { r.unlock(h) })
		time.AfterFunc(500*ms, late.lift)
		o := <-w
		r.must(o.err)
		r.at(500 * ms)
		r.unlock(o.hold)
	})
}

func TestBubbleAnOwnReleaseInterruptsASubscribingThatHangs(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		n.net.disturb(holdRequest, "subscribe")
		h := r.lock(n.NewRLock("a"))
		w := r.waiting(n.NewRLock("a"))
		r.passTo(sec)
		r.unlock(h)
		o := <-w
		r.must(o.err)
		r.at(sec)
		r.unlock(o.hold)
	})
}

func TestBubbleASubscribingThatHangsDoesNotKeepTheHeadFromTheTTL(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		n.net.disturb(holdRequest, "subscribe")
		r.occupy("a", 3*sec)
		h := r.lock(n.NewRLock("a"))
		r.justAfter(3 * sec)
		r.unlock(h)

		r.occupy("b", time.Hour)
		from := r.now()
		time.AfterFunc(ms, func() { r.vanish("b") })
		h = r.lock(n.NewRLock("b"))
		r.between(from+5*sec, from+5500*ms)
		r.unlock(h)
	})
}

func TestBubbleAReestablishedSubscriptionWakesTheHead(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		r.occupy("a", time.Hour)
		w := r.waiting(n.NewRLock("a"))
		r.passTo(sec)
		r.vanish("a")
		r.passTo(2 * sec)
		n.net.cutSubscribers()
		o := <-w
		r.must(o.err)
		r.at(2 * sec)
		r.unlock(o.hold)
	})
}

func TestBubbleADeadSubscriptionIsFoundAndReplaced(t *testing.T) {
	bubble(t, func(r *rig) {
		holder, n := r.node(rlock.Options{}), r.node(rlock.Options{})
		h := r.lock(holder.NewRLock("a"), rlock.WithLease(time.Hour))
		w := r.waiting(n.NewRLock("a"))
		r.passTo(sec)
		silent := n.net.disturbNext(1, holdReply, "ping") // of 3 s, on this connection for good
		r.passTo(3500 * ms)
		r.unlock(h) // the message does not arrive
		o := <-w
		r.must(o.err)
		r.at(5 * sec) // 3 s of quiet, and 2 s for an answer to the PING
		silent.drop()
		r.unlock(o.hold)
	})
}

func TestBubbleARefusedChannelIsPolledAtTheRecheckAndReportedOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		var log bytes.Buffer
		n := r.node(rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		n.net.answerWith(-1, "-NOPERM this user has no permissions to access one of the channels\r\n", "subscribe")
		for _, name := range []string{"a", "b"} {
			from := r.now()
			r.occupy(name, time.Hour)
			time.AfterFunc(ms, func() { r.vanish(name) })
			h := r.lock(n.NewRLock(name))
			r.between(from+5*sec, from+5500*ms)
			r.unlock(h)
		}
		if got := strings.Count(log.String(), "no rights on the unlock channel"); got != 1 {
			r.Errorf("reported %d times:\n%s", got, log.String())
		}
	})
}

func TestBubbleASubscriptionLingersForHalfASecond(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		h := r.lock(n.NewRLock("a"))
		w := r.waiting(n.NewRLock("a"))
		r.unlock(h)
		r.unlock((<-w).hold)
		r.pass(500*ms - 1)
		if n.net.subscribers() != 1 {
			r.Error("the subscription did not linger")
		}
		r.pass(1)
		r.idle(n)
	})
}
