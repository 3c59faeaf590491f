//go:build scenarios

package scenarios_test

import (
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestB218AMessageWakesAClientAndNotItsGoroutines(t *testing.T) {
	const clients = 10
	waiters := rounds(t, 1000, 400)
	r := newRigAlone(t, redistest.Config{})
	h := r.mustLock(r.lock(rlock.Options{Lease: long}))
	all := r.clients(clients, rlock.Options{Lease: long})
	var parked sync.WaitGroup
	parked.Add(waiters)
	done := make(chan []visit, 1)
	go func() {
		done <- r.contend(waiters, contest{turns: 1, lock: func(i int) *rlock.RLock {
			parked.Done()
			return all[i%clients].NewRLock(r.name)
		}})
	}()
	parked.Wait()
	r.awaitSubscribers(r.name, clients)

	var visits []visit
	counts := r.Commands(t, func() {
		r.mustUnlock(h)
		visits = await(t, done, stuck, "all waiters have had their turn")
	})
	handedOver := int64(len(visits))
	attempts := counts["evalsha"] - handedOver - 1 // the rest released
	perTurn := float64(attempts) / float64(handedOver)
	t.Logf("%d waiters in %d clients: %.2f attempts a hand-over; %v", waiters, clients, perTurn, counts)
	if perTurn > clients {
		t.Errorf("%.2f attempts a hand-over, want at most one for each of %d clients", perTurn, clients)
	}
	if counts["subscribe"] > clients {
		t.Errorf("%d subscriptions of %d clients", counts["subscribe"], clients)
	}
}
