//go:build scenarios

package scenarios_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// stay is one time that somebody is inside a lock. It lasts from the return of
// Lock to the call of Unlock, or until the hold says that it was lost.
type stay struct {
	hold    *rlock.Hold
	removed bool // the test took the lock away itself; the holder cannot know yet
}

// enter records that a hold's owner is inside, and fails the test if another
// one is. It is called after Lock has returned, and leave before Unlock is
// called, so a stay that is still recorded began before and has not ended.
func (r *rig) enter(h *rlock.Hold) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.inside[h.Name()] {
		if s.removed || s.hold.Owner() == h.Owner() {
			continue
		}
		// The clock tells a holder of its loss before Redis lets in another.
		if s.hold.Err() == nil {
			r.t.Errorf("%s: %s came in while %s was inside", h.Name(), h.Owner(), s.hold.Owner())
		}
	}
	r.inside[h.Name()] = append(r.inside[h.Name()], &stay{hold: h})
}

// leave records that a hold's owner is inside no longer.
func (r *rig) leave(h *rlock.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.inside[h.Name()], func(s *stay) bool { return s.hold == h })
	if len(rest) == 0 {
		delete(r.inside, h.Name())
		return
	}
	r.inside[h.Name()] = rest
}

// removing says that the test is about to take the lock from this hold behind
// its back: others may come in before it knows. Call it before doing so.
func (r *rig) removing(h *rlock.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.inside[h.Name()] {
		if s.hold == h {
			s.removed = true
		}
	}
}

// visit is a turn of one contender.
type visit struct {
	contender           int
	asked, enter, leave time.Time
}

// contest is what contenders do: each takes a number of turns, as fast as it
// can, and stays inside for a while.
type contest struct {
	turns  int
	inside func()                                       // what is done inside; nil for nothing
	lock   func(i int) *rlock.RLock                     // the lock as contender i sees it
	unlock func() (context.Context, context.CancelFunc) // for Unlock; nil for the test's
}

// contend lets n contenders loose and returns their visits in order of entry.
// It fails the test if two were ever inside at one time: by the intervals, by
// what their holds say, and by a counter that only the lock guards.
func (r *rig) contend(n int, c contest) []visit {
	r.t.Helper()
	counter := 0 // neither atomic nor guarded, but by the lock under test
	visits := make([][]visit, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for range c.turns {
				v, ok := r.turn(i, c, &counter)
				if !ok {
					return
				}
				visits[i] = append(visits[i], v)
			}
		})
	}
	group.Wait()
	all := slices.Concat(visits...)
	if counter != len(all) {
		r.t.Errorf("the counter is %d after %d visits: two were inside at one time", counter, len(all))
	}
	inOrder(r.t, all)
	return all
}

// turn is one turn of a contender; it returns false after a failure.
func (r *rig) turn(i int, c contest, counter *int) (visit, bool) {
	lock := c.lock(i)
	v := visit{contender: i, asked: time.Now()}
	h, err := lock.Lock(r.t.Context())
	if err != nil {
		r.t.Errorf("contender %d: Lock: %v", i, err)
		return v, false
	}
	v.enter = time.Now()
	r.enter(h)
	before := *counter
	if c.inside != nil {
		c.inside()
	} else {
		runtime.Gosched()
	}
	*counter = before + 1
	v.leave = time.Now()
	r.leave(h)
	ctx, cancel := r.t.Context(), context.CancelFunc(func() {})
	if c.unlock != nil {
		ctx, cancel = c.unlock()
	}
	defer cancel()
	if err := h.Unlock(ctx); err != nil {
		r.t.Errorf("contender %d: Unlock: %v", i, err)
		return v, false
	}
	return v, true
}

// inOrder sorts visits by entry and checks that each ended before the next one
// began.
func inOrder(t *testing.T, visits []visit) {
	t.Helper()
	slices.SortFunc(visits, func(a, b visit) int { return a.enter.Compare(b.enter) })
	for i := 1; i < len(visits); i++ {
		if before, v := visits[i-1], visits[i]; v.enter.Before(before.leave) {
			t.Errorf("contender %d came in %v before contender %d had left",
				v.contender, before.leave.Sub(v.enter), before.contender)
		}
	}
}

// handOvers returns how long each hand-over took: from the moment at which a
// holder left to the entry of the next one, where that was waiting already.
func handOvers(visits []visit) []time.Duration {
	var took []time.Duration
	for i := 1; i < len(visits); i++ {
		if before, v := visits[i-1], visits[i]; v.asked.Before(before.leave) {
			took = append(took, v.enter.Sub(before.leave))
		}
	}
	return took
}

// quantile returns the value that a part q of the durations does not exceed.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}
