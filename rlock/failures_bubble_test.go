package rlock_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleAnUnboundedLockReturnsItsFirstFailure(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(n *network)
		takes time.Duration
		want  error
	}{
		"no answer": {func(n *network) { n.disturb(holdReply, "acquire") }, 10 * sec, os.ErrDeadlineExceeded},
		"refused":   {func(n *network) { n.refuse(os.ErrPermission) }, 0, os.ErrPermission},
		"late twice": {func(n *network) {
			n.answerWith(2, "*3\r\n:2\r\n:0\r\n:4102444800000\r\n", "acquire")
		}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{}, never)
				c.fault(n.net)
				h, err := n.NewRLock("a").Lock(r.Context())
				if c.want == nil { // both copies were answered: it goes on
					r.must(err)
					r.between(0, 10*ms)
					r.unlock(h)
					return
				}
				r.at(c.takes)
				r.fails(err, c.want)
			})
		})
	}
}

func TestBubbleAWaiterSurvivesFailures(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{}, never)
		r.occupy("a", 7*sec)
		w := r.waiting(n.NewRLock("a"))
		r.passTo(sec)
		n.net.disturb(cut)
		n.net.refuse(os.ErrPermission)
		r.passTo(20 * sec)
		if len(w) > 0 {
			r.Fatalf("a waiter gave up: %v", (<-w).err)
		}
		n.net.heal()
		o := <-w
		r.must(o.err)
		r.between(20*sec, 21*sec)
	})
}

func TestBubblePausesBetweenFailuresDoubleUpToASecond(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		n.net.answerWith(-1, "-LOADING Redis is loading the dataset in memory\r\n", "acquire")
		_, err := n.NewRLock("a").TryLock(r.Context(), time.Minute)
		r.at(time.Minute)
		if err == nil || errors.Is(err, rlock.ErrNotAcquired) {
			r.Errorf("TryLock: %v, want the error of Redis", err)
		}
		at := n.net.times("acquire")
		if len(at) < 60 {
			r.Fatalf("%d attempts in a minute", len(at))
		}
		// The confirmation of the subscription does not wait for the pause, and the
		// last attempt comes just before the deadline.
		for i, bound := 0, 10*ms; i < len(at)-2; i, bound = i+1, min(2*bound, sec) {
			if got := at[i+1] - at[i]; at[i+1] > 0 && (got < bound/2 || got > bound) {
				r.Errorf("pause %d is %v, want %v to %v", i, got, bound/2, bound)
			}
		}
	})
}

func TestBubbleErrorsThatDoNotPassEndALockAtOnce(t *testing.T) {
	for _, refusal := range []string{
		"-NOPERM this user has no permissions\r\n", "-WRONGTYPE Operation against a key\r\n", "-NOAUTH Authentication required.\r\n",
	} {
		t.Run(refusal[1:7], func(t *testing.T) {
			bubble(t, func(r *rig) {
				n := r.node(rlock.Options{})
				r.occupy("a", 3*sec)
				w := r.waiting(n.NewRLock("a"))
				n.net.answerWith(-1, refusal, "acquire")
				_, err := n.NewRLock("b").TryLock(r.Context(), time.Minute)
				r.at(0)
				if err == nil || errors.Is(err, rlock.ErrNotAcquired) {
					r.Errorf("TryLock: %v, want the error of Redis", err)
				}
				o := <-w // at its next attempt
				if r.between(3*sec, 3*sec+5*ms); o.err == nil {
					r.Error("a waiter got the lock")
				}
				synctest.Wait()
			})
		})
	}
}
