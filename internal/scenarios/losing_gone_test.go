//go:build scenarios

package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestB034AnExpiredLockCannotBeExtended(t *testing.T) {
	t.Parallel()
	const lease = 150 * time.Millisecond
	r := newRig(t)
	a := r.lock(rlock.Options{Lease: watchdogLease})
	b := r.lock(rlock.Options{Lease: 2 * watchdogLease})

	t.Run("after its lease", func(t *testing.T) {
		h := r.mustLock(a, rlock.WithLease(lease))
		r.awaitGone(r.name, stuck)
		wantIs(t, h.Renew(t.Context(), long), rlock.ErrLost, rlock.ErrNotHeld)
		r.wantFree()
		next := r.mustLock(b)
		wantIs(t, h.Renew(t.Context(), long), rlock.ErrLost)
		r.wantHeld(next, "1")
		if ttl := r.ttl(); ttl > 2*watchdogLease {
			t.Errorf("the extension of a lost hold gave the next one a TTL of %v", ttl)
		}
		r.wantLostUnlock(h)
		r.mustUnlock(next)
	})
	t.Run("after a deletion, asked by Renew", func(t *testing.T) {
		h := r.mustLock(a, rlock.WithLease(long))
		r.removing(h)
		r.del()
		wantIs(t, h.Renew(t.Context(), long), rlock.ErrLost, rlock.ErrNotHeld)
		r.wantFree()
		r.wantLostUnlock(h)
	})
	t.Run("after a deletion, asked by the watchdog", func(t *testing.T) {
		h := r.mustLock(a)
		at := told(h)
		r.removing(h)
		r.del()
		wantTold(t, at, time.Now(), watchdogLease/3)
		wantIs(t, h.Err(), rlock.ErrLost, rlock.ErrNotHeld)
		r.staysFree()
		r.wantLostUnlock(h)
	})
}

// staysFree checks that nobody makes the test's main lock again within a time in
// which a renewal would.
func (r *rig) staysFree() {
	r.t.Helper()
	m := measure(r.t, func(ctx context.Context) bool {
		n, err := r.rdb.Exists(ctx, r.name).Result()
		if ctx.Err() == nil && (n != 0 || err != nil) {
			r.t.Errorf("EXISTS = %d, %v: somebody made the lock again", n, err)
			return false
		}
		return true
	})
	pass(watchdogLease)
	m.finish()
}

func TestB035ARemovedLockIsTakenFromItsHolderAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	r := newRig(t)
	a := r.lock(rlock.Options{Lease: lease})
	b := r.lock(rlock.Options{Lease: lease})
	h := r.mustLock(a)
	at := told(h)
	inside := h.Context(t.Context())
	r.removing(h)
	r.del()
	removed := time.Now()
	next := r.mustLock(b)
	wantTold(t, at, removed, lease/3)
	wantIs(t, h.Err(), rlock.ErrLost)
	wantIs(t, context.Cause(inside), rlock.ErrLost)
	if _, ok := a.HoldFrom(inside); ok {
		t.Error("the context of the lost hold still carries it")
	}
	r.wantLostUnlock(h)
	r.wantHeld(next, "1")
	r.mustUnlock(next)
}

// A server that comes back empty has forgotten the lock. Until the holder asks
// it the next time there may be two; this is what docs/failure-modes.md says of
// a server without persistence.
func TestB038ARestartedServerIsAskedAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	r := newRigAlone(t, redistest.Config{})
	a := r.lock(rlock.Options{Lease: lease})
	b := r.lock(rlock.Options{Lease: lease})
	h := r.mustLock(a)
	at := told(h)
	r.removing(h)
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	up := time.Now()
	next := r.mustLock(b)
	lost := await(t, at, stuck, "the holder is told of its loss")
	t.Logf("told %v after the server was up again", lost.Sub(up).Round(time.Millisecond))
	if late := lost.Sub(up) - lease/3; late > tellSlack {
		t.Errorf("told %v later than the next renewal", late)
	}
	if late := lost.Sub(killed) - lease; late > tellSlack {
		t.Errorf("told %v later than a lease after the last confirmed renewal", late)
	}
	r.wantLostUnlock(h)
	r.wantHeld(next, "1")
	r.mustUnlock(next)
}

// Renewals that cross an unlock, many times: no orderly hold is ever told that
// it was lost.
func TestB041OrderlyHoldsAreNeverToldOfALoss(t *testing.T) {
	t.Parallel()
	const workers = 50
	// The lease of the case is for a machine that is otherwise idle.
	lease := time.Second
	if full(t) {
		lease = 300 * time.Millisecond
	}
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	m := measure(t, r.ping)
	var mu sync.Mutex
	var losses []error
	r.eachOf(workers, rounds(t, 20000, 400), func(i int) error {
		lock := c.NewRLock(r.prefix + strconv.Itoa(i%(2*workers)))
		h, err := lock.TryLock(t.Context(), stuck)
		if err != nil {
			return err
		}
		pass(rand.N(lease))
		loss, err := orderly(t.Context(), lock, h)
		if loss != nil {
			mu.Lock()
			losses = append(losses, loss)
			mu.Unlock()
		}
		return err
	})
	m.finish()
	t.Logf("%d losses, longest stall of the machine %v", len(losses), m.stall)
	for _, loss := range losses {
		// Where nobody could run for so long, the lease did run out.
		if m.stall < lease/3 {
			t.Errorf("with no stall beyond %v: %v", m.stall, loss)
		}
	}
}

// orderly unlocks a hold and returns what says that it was lost. It is an error
// if that was said to be Redis' own word, and Redis has the lock.
func orderly(ctx context.Context, lock *rlock.RLock, h *rlock.Hold) (loss, err error) {
	lost, why := isClosed(h.Lost()), h.Err()
	info, err := lock.Info(ctx)
	if why != nil && !strings.Contains(why.Error(), "ran out") && info.Owner == h.Owner() {
		err = errors.Join(err, fmt.Errorf("a false alarm: Err is %w, and Redis has %+v", why, info))
	}
	loss = h.Unlock(ctx)
	if loss == nil && (lost || why != nil) {
		err = errors.Join(err, fmt.Errorf("the loss was told (Lost %v, Err %w), and Unlock found none", lost, why))
	}
	return loss, err
}

// A job far longer than the lease, which two nodes want to run: one at a time.
func TestB046ALongJobRunsOnOneNodeAtATime(t *testing.T) {
	t.Parallel()
	const lease, runs = 600 * time.Millisecond, 20
	r := newRig(t)
	nodes := r.clients(2, rlock.Options{Lease: lease})
	var jobs atomic.Int32
	var group sync.WaitGroup
	for run := range runs {
		var running, ran atomic.Int32
		for _, node := range nodes {
			lock := node.NewRLock(r.prefix + strconv.Itoa(run))
			group.Go(func() {
				err := lock.TryDo(t.Context(), stuck, func(ctx context.Context) error {
					if n := running.Add(1); n != 1 {
						t.Errorf("run %d: %d nodes run the job", run, n)
					}
					defer running.Add(-1)
					h, _ := lock.HoldFrom(ctx)
					r.enter(h)
					defer r.leave(h)
					if ran.Add(1) == 1 {
						pass(5 * lease) // the other one waits meanwhile
					}
					jobs.Add(1)
					return context.Cause(ctx)
				})
				if err != nil {
					t.Errorf("run %d: %v", run, err)
				}
			})
		}
	}
	group.Wait()
	if n := jobs.Load(); n != 2*runs {
		t.Errorf("%d jobs ran, want %d", n, 2*runs)
	}
}

// A loss inside the critical section comes out as an error of the API, and as
// nothing else: a panic in any goroutine would end this process.
func TestB049ALossInsideTheCriticalSectionIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: watchdogLease})
	failed := errors.New("the work failed")
	works := map[string]struct {
		after func(context.Context) error
		want  []error
	}{
		"work that returns nil":         {func(context.Context) error { return nil }, nil},
		"work that returns ctx's error": {context.Context.Err, []error{context.Canceled}},
		"work that fails":               {func(context.Context) error { return failed }, []error{failed}},
		"work that locks again": {func(ctx context.Context) error {
			_, err := lock.Lock(ctx)
			return err
		}, nil},
		"work that renews and unlocks": {func(ctx context.Context) error {
			h, _ := ctx.Value(heldKey{}).(*rlock.Hold)
			return errors.Join(h.Renew(ctx, long), h.Unlock(ctx), h.Unlock(ctx))
		}, nil},
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			err := lock.Do(t.Context(), func(ctx context.Context) error {
				h, _ := lock.HoldFrom(ctx)
				if err := r.rdb.Del(ctx, r.name).Err(); err != nil {
					return err
				}
				<-ctx.Done()
				return work.after(context.WithValue(ctx, heldKey{}, h))
			})
			wantIs(t, err, append(work.want, rlock.ErrLost)...)
		})
	}
}

// heldKey carries the hold to work that wants it after the loss, when the
// library's own context does not carry it any more.
type heldKey struct{}
