//go:build scenarios

package scenarios_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/rlock"
)

// The last hold of a client goes and the next one comes, at any time between
// two renewals: the renewing starts anew.
func TestB059AHoldRightAfterTheLastOneIsRenewed(t *testing.T) {
	t.Parallel()
	const clients = 20
	r := newRig(t)
	opts := rlock.Options{Lease: watchdogLease}
	loops := rounds(t, 200, clients) / clients
	var group sync.WaitGroup
	for i, c := range r.clients(clients, opts) {
		first := c.NewRLock(r.prefix + "first:" + strconv.Itoa(i))
		second := c.NewRLock(r.prefix + "second:" + strconv.Itoa(i))
		group.Go(func() {
			for range loops {
				h, err := first.TryLock(t.Context(), stuck)
				if err != nil {
					t.Error(err)
					return
				}
				pass(rand.N(watchdogLease / 3))
				r.checkUnlock(h)
				pass(rand.N(watchdogLease/3) * time.Duration(i%2)) // at once, or a little later
				if h, err = second.TryLock(t.Context(), stuck); err != nil {
					t.Error(err)
					return
				}
				r.keep(h, nil, watchdogLease, leases(t, watchdogLease, 3, 2))
				r.checkUnlock(h)
			}
		})
	}
	group.Wait()
}

// checkUnlock is mustUnlock for a hold that was not recorded as inside.
func (r *rig) checkUnlock(h *rlock.Hold) {
	if err := h.Unlock(r.t.Context()); err != nil {
		r.t.Errorf("Unlock of %s: %v", h.Name(), err)
	}
}

// Long holds and a storm of short ones in one client: the renewing is neither
// confused by names that come and go, nor starved by their commands.
func TestB061LongHoldsSurviveAStormOfShortOnes(t *testing.T) {
	t.Parallel()
	const holds, stormers = 200, 200
	// The lease of the case is for a machine that is otherwise idle.
	lease, during := 2*time.Second, 4*time.Second
	if full(t) {
		lease, during = 600*time.Millisecond, time.Minute
	}
	r := newRig(t)
	c := r.client(rlock.Options{Lease: lease})
	m := measure(t, r.ping)
	long := make([]*rlock.Hold, holds)
	for i := range long {
		long[i] = r.mustLock(c.NewRLock(r.prefix + "long:" + strconv.Itoa(i)))
	}
	var turns atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range stormers {
		lock := c.NewRLock(r.prefix + "short:" + strconv.Itoa(i))
		group.Go(func() {
			for !isClosed(stop) {
				// Bounded: what the pool of connections keeps waiting for longer
				// than a third of the lease is tried again.
				h, err := lock.TryLock(t.Context(), stuck)
				if err != nil {
					t.Error(err)
					return
				}
				r.checkUnlock(h)
				turns.Add(1)
			}
		})
	}
	pass(during)
	close(stop)
	group.Wait()
	m.finish()
	t.Logf("%d short holds meanwhile, longest stall of the machine %v", turns.Load(), m.stall)
	lost := 0
	for _, h := range long {
		r.leave(h)
		if h.Unlock(t.Context()) != nil {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d long holds were lost", lost, holds)
	}
}

// Two clients take a lock from each other, through one long-lived object each:
// every hold is renewed, not only the first.
func TestB064EveryHoldOfASwapIsRenewed(t *testing.T) {
	t.Parallel()
	const lease, names = watchdogLease, 10
	r := newRig(t)
	clients := r.clients(2, rlock.Options{Lease: lease})
	swaps := rounds(t, 20, 1)
	var group sync.WaitGroup
	for i := range names {
		name := r.prefix + strconv.Itoa(i)
		locks := []*rlock.RLock{clients[0].NewRLock(name), clients[1].NewRLock(name)}
		group.Go(func() { r.swap(locks, swaps, lease) })
	}
	group.Wait()
}

func (r *rig) swap(locks []*rlock.RLock, swaps int, lease time.Duration) {
	h, err := locks[0].TryLock(r.t.Context(), stuck)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.enter(h)
	for i := range swaps + 1 {
		next := r.beginBounded(locks[(i+1)%2])
		r.keep(h, nil, lease, leases(r.t, lease, 3, 2))
		r.leave(h)
		r.checkUnlock(h)
		got := <-next
		if got.err != nil {
			r.t.Error(got.err)
			return
		}
		h = got.hold
	}
	r.leave(h)
	r.checkUnlock(h)
}

// Very many holds behind a slow network: none waits for the others.
func TestB065ManyHoldsAreRenewedInTime(t *testing.T) {
	t.Parallel()
	const lease, lockers = 2 * time.Second, 50
	r := newRig(t)
	p := r.proxy()
	c := r.client(rlock.Options{Lease: lease}, through(p))
	p.On(faultproxy.Any()).DelayReply(2 * time.Millisecond)
	m := measure(t, r.ping)
	holds := make([]*rlock.Hold, rounds(t, 10_000, 1_000))
	r.eachOf(lockers, len(holds), func(i int) error {
		h, err := c.NewRLock(r.prefix+strconv.Itoa(i)).TryLock(t.Context(), stuck)
		holds[i] = h
		return err
	})
	if t.Failed() {
		return
	}
	shortest := lease
	began := time.Now()
	for time.Since(began) < time.Duration(rounds(t, 30, 4))*time.Second {
		pass(lookEvery)
		for _, h := range holds {
			shortest = min(shortest, time.Until(h.ValidUntil()))
		}
	}
	m.finish()
	t.Logf("%d holds: a renewal was confirmed at most %v after it was due; longest stall of the machine %v",
		len(holds), max(lease-lease/3-shortest, 0).Round(time.Millisecond), m.stall.Round(time.Millisecond))
	r.eachOf(lockers, len(holds), func(i int) error { return holds[i].Unlock(t.Context()) })
}

// eachOf calls do for 0 to n-1, in a number of goroutines, and reports errors.
func (r *rig) eachOf(workers, n int, do func(i int) error) {
	r.t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					r.t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	group.Wait()
}

var _ = addProgram("busy holder", busyHolder)

// busyHolder is a program with one processor and eight goroutines that never
// give it up by themselves. Its first line is the name of a lock, which it
// holds until the second: "held OWNER", and then what Unlock says.
func busyHolder(p *program) error {
	runtime.GOMAXPROCS(1)
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := 0; !stop.Load(); n++ {
				_ = strings.Repeat("x", n%64)
			}
		})
	}
	defer group.Wait()
	defer stop.Store(true)
	if !p.lines.Scan() {
		return p.lines.Err()
	}
	ctx, name := context.Background(), p.lines.Text()
	// Bounded, so that a slow first connection is tried again.
	h, err := p.client.NewRLock(name).TryLock(ctx, stuck)
	if err != nil {
		return err
	}
	p.say("held", h.Owner())
	if !p.lines.Scan() {
		return fmt.Errorf("no second line: %w", p.lines.Err())
	}
	p.say(stateOf(h.Unlock(ctx), "ok"))
	return nil
}

func TestB068ABusyProcessorDoesNotStarveTheRenewals(t *testing.T) {
	t.Parallel()
	// The lease of the case is for a machine that is otherwise idle.
	lease, during := 2*time.Second, 5*time.Second
	if full(t) {
		lease, during = time.Second, 10*time.Minute
	}
	r := newRig(t)
	rival := r.lock(rlock.Options{Lease: lease})
	holder := start(t, "busy holder", r.Addr(), lease)
	got := holder.ask(r.name)
	if len(got) != 2 || got[0] != "held" {
		t.Fatalf("the process said %q", got)
	}
	v := r.watch(r.name, got[1], rival)
	pass(during)
	v.finish()
	t.Logf("the TTL came down to %v; longest stall of the machine %v", v.lowest, v.stall)
	if got := holder.ask("unlock"); got[0] != "ok" {
		t.Errorf("Unlock: %q", got)
	}
}
