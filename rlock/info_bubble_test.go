package rlock_test

import (
	"context"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/rlock"
)

func TestBubbleInfoAndForceUnlockAreBoundedByUnlockTimeout(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{UnlockTimeout: 2 * sec}, never)
		n.net.disturb(holdRequest)
		_, err := n.NewRLock("a").Info(r.Context())
		r.at(2 * sec)
		r.fails(err, os.ErrDeadlineExceeded)
		_, err = n.NewRLock("a").ForceUnlock(r.Context())
		r.at(4 * sec)
		r.fails(err, os.ErrDeadlineExceeded)
		ctx, cancel := context.WithTimeout(r.Context(), sec)
		defer cancel()
		_, err = n.NewRLock("a").Info(ctx)
		r.at(5 * sec)
		r.fails(err, context.DeadlineExceeded)
	})
}

func TestBubbleInfoTellsWhatIsLeft(t *testing.T) {
	bubble(t, func(r *rig) {
		n := r.node(rlock.Options{})
		l := n.NewRLock("a")
		h := r.lock(l)
		r.passTo(13 * sec)
		got, err := l.Info(r.Context())
		r.must(err)
		if want := (rlock.Info{Held: true, Owner: h.Owner(), Count: 1, TTL: 27 * sec}); got != want {
			r.Errorf("Info: %+v, want %+v", got, want)
		}
		r.must(r.admin.Persist(r.Context(), "a").Err())
		if got, err = l.Info(r.Context()); err != nil || got.TTL != -1 {
			r.Errorf("Info of a lock without a TTL: %+v, %v", got, err)
		}
		r.unlock(h)
		if got, err = l.Info(r.Context()); err != nil || got != (rlock.Info{}) {
			r.Errorf("Info of a free lock: %+v, %v", got, err)
		}
	})
}
