//go:build scenarios

package scenarios_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// The tests of this file measure hand-overs, so none of them runs beside others.

func TestB001EveryWaiterIsWokenInTurn(t *testing.T) {
	const waiters = 20
	r := newRigAlone(t, redistest.Config{})
	holder := r.lock(rlock.Options{Lease: long})
	clients := r.clients(4, rlock.Options{Lease: long})
	var took []time.Duration
	for range rounds(t, 500, 60) {
		held := visit{contender: waiters, asked: time.Now()}
		h := r.mustLock(holder)
		held.enter = time.Now()
		var parked sync.WaitGroup
		parked.Add(waiters)
		visits := make(chan []visit, 1)
		go func() {
			visits <- r.contend(waiters, contest{turns: 1, lock: func(i int) *rlock.RLock {
				parked.Done()
				return clients[i%len(clients)].NewRLock(r.name)
			}})
		}()
		parked.Wait()
		r.awaitSubscribers(r.name, int64(len(clients)))
		held.leave = time.Now()
		r.mustUnlock(h)
		took = append(took, handOvers(append([]visit{held}, <-visits...))...)
	}
	p999, worst := quantile(took, 0.999), quantile(took, 1)
	t.Logf("%d hand-overs: p50 %v, p99.9 %v, worst %v", len(took), quantile(took, 0.5), p999, worst)
	if p999 > 100*time.Millisecond {
		t.Errorf("p99.9 of the hand-overs is %v, want at most 100ms", p999)
	}
	if worst > recheck/2 {
		t.Errorf("a hand-over took %v: nobody was woken for it", worst)
	}
}

// Whoever waits: the goroutines of one client, or many clients.
func TestB005ALongHoldDelaysNobodyFurther(t *testing.T) {
	const callers, hold, work = 12, 2 * time.Second, 10 * time.Millisecond
	for _, clients := range []int{1, callers} {
		t.Run(strconv.Itoa(clients)+" clients", func(t *testing.T) {
			t.Parallel()
			r := newRigAlone(t, redistest.Config{})
			all := r.clients(clients, rlock.Options{Lease: long})
			h := r.mustLock(r.lock(rlock.Options{Lease: long}))
			held := time.Now()
			var group sync.WaitGroup
			group.Go(func() {
				pass(hold)
				r.mustUnlock(h)
			})
			r.contend(callers, contest{
				turns:  1,
				inside: func() { pass(work) },
				lock: func(i int) *rlock.RLock {
					pass(time.Duration(i) * hold / callers / 2) // they arrive one by one
					return all[i%clients].NewRLock(r.name)
				},
			})
			took := time.Since(held)
			group.Wait()
			t.Logf("all done %v after the long hold began", took)
			if took > hold+500*time.Millisecond {
				t.Errorf("all were done after %v, want at most %v", took, hold+500*time.Millisecond)
			}
		})
	}
}

func TestB019ShortHoldsPingPong(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	clients := r.clients(2, rlock.Options{Lease: long})
	visits := r.contend(2, contest{
		turns:  rounds(t, 20_000, 800) / 2,
		inside: func() { pass(rand.N(2 * time.Millisecond)) },
		lock:   func(i int) *rlock.RLock { return clients[i].NewRLock(r.name) },
	})
	took := handOvers(visits)
	worst := quantile(took, 1)
	t.Logf("%d turns, %d hand-overs: p50 %v, p99 %v, worst %v",
		len(visits), len(took), quantile(took, 0.5), quantile(took, 0.99), worst)
	if worst > 500*time.Millisecond {
		t.Errorf("a hand-over took %v, want at most 500ms", worst)
	}
}

// One connection for everything: those who acquire must not keep those who
// release from it.
func TestB022AOneConnectionPoolNeverStalls(t *testing.T) {
	const contenders = 16
	r := newRigAlone(t, redistest.Config{})
	clients := r.clients(2, rlock.Options{Lease: long}, func(o *redis.Options) { o.PoolSize = 1 })
	visits := r.contend(contenders, contest{
		turns: rounds(t, 2000, 40),
		lock:  func(i int) *rlock.RLock { return clients[i%len(clients)].NewRLock(r.name) },
		unlock: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 2*time.Second)
		},
	})
	var gap time.Duration
	for i := 1; i < len(visits); i++ {
		gap = max(gap, visits[i].enter.Sub(visits[i-1].enter))
	}
	t.Logf("%d turns, the longest time without progress %v", len(visits), gap)
	if gap > time.Second {
		t.Errorf("nobody came in for %v, want at most 1s", gap)
	}
}
