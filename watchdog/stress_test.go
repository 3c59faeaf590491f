package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

// ledger records when batches started that contain a key, and when Stop of its lease returned.
type ledger struct {
	mu      sync.Mutex
	started map[int][]time.Time
	stopped map[int]time.Time
	renewed map[int]chan struct{} // closed by the first renewal
}

const (
	stressLease = 60 * time.Millisecond
	stressHalf  = stressLease / 3 / 2 // from the start of a batch to the deadline of its context
)

func (g *ledger) renew(ctx context.Context, _ string, keys []int) []watchdog.Outcome {
	deadline, _ := ctx.Deadline()
	outcomes := make([]watchdog.Outcome, len(keys))
	g.mu.Lock()
	for i, key := range keys {
		g.started[key] = append(g.started[key], deadline.Add(-stressHalf))
		if len(g.started[key]) == 1 {
			close(g.renewed[key])
		}
		outcomes[i] = watchdog.Renewed
		if rand.IntN(4) == 0 {
			outcomes[i] = watchdog.Unknown
		}
	}
	g.mu.Unlock()
	runtime.Gosched()
	return outcomes
}

// hold keeps key, in half of the cases until its first renewal, and stops it.
func (g *ledger) hold(t *testing.T, w *watchdog.Watchdog[int], key int) {
	t.Helper()
	renewed := make(chan struct{})
	g.mu.Lock()
	g.renewed[key] = renewed
	g.mu.Unlock()
	l := w.Keep(key, fmt.Sprint("g", key%3), stressLease, time.Now().Add(-rand.N(stressLease/3)))
	if key%2 == 0 {
		select {
		case <-renewed:
		case <-l.Lost(): // the machine was busy
		}
	} else {
		<-time.After(rand.N(stressLease / 3)) // the renewal and Stop meet
	}
	l.Extend(time.Now(), time.Millisecond)
	l.Stop()
	stopped := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped[key] = stopped
	if err := l.Err(); err != nil && !errors.Is(err, watchdog.ErrExpired) {
		t.Errorf("Err() = %v; no lease was gone and the watchdog is open", err)
	}
}

func TestNoBatchStartsWithAStoppedLease(t *testing.T) {
	const workers, rounds = 16, 30
	before := runtime.NumGoroutine()
	g := &ledger{started: map[int][]time.Time{}, stopped: map[int]time.Time{}, renewed: map[int]chan struct{}{}}
	w, err := watchdog.New(g.renew, watchdog.Options[int]{BatchSize: 3, OnLost: func(int, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for round := range rounds {
				g.hold(t, w, worker*rounds+round)
			}
		})
	}
	wg.Wait()
	if err := w.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	batches := 0
	for key, starts := range g.started {
		batches += len(starts)
		for _, at := range starts {
			if at.After(g.stopped[key]) {
				t.Errorf("a batch with key %d started %v after Stop had returned", key, at.Sub(g.stopped[key]))
			}
		}
	}
	if batches < workers*rounds/4 {
		t.Errorf("only %d renewals of %d leases: this test shows nothing", batches, workers*rounds)
	}
	waitForGoroutines(t, before)
	if w.TakeTimer() {
		t.Error("a timer is armed although nothing is kept")
	}
}

// waitForGoroutines waits until no more goroutines run than before: those that have done their last act need a moment
// to end.
func waitForGoroutines(t *testing.T, before int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for runtime.NumGoroutine() > before {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%d goroutines; want the %d from before", runtime.NumGoroutine(), before)
		}
	}
}

func TestManyLeasesNeedFewCallsAndNoGoroutine(t *testing.T) {
	const leases, rounds = 10_000, 10
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		before := runtime.NumGoroutine()
		phase := rand.New(rand.NewPCG(1, 2))
		for i := range leases {
			ago := time.Duration(phase.Int64N(int64(10 * s)))
			r.Keep(strconv.Itoa(i), "g", 30*s, time.Now().Add(-ago))
		}
		r.until(30 * s)
		first := len(r.server.recorded())
		r.until(rounds * 30 * s)
		if n := runtime.NumGoroutine(); n > before+1 {
			t.Errorf("%d goroutines for %d leases between renewals; want 1 at most", n-before, leases)
		}
		// Within a lease time each of the up to 8 waves of an interval may end in a batch that is not full.
		const least, most = 3 * leases / 100, 3 * (leases/100 + 8)
		perLease := float64(len(r.server.recorded())-first) / (rounds - 1)
		if first < least || first > most*8/7 || perLease < least || perLease > most {
			t.Errorf("%d calls in the first lease time, then %.1f in each; want %d to %d", first, perLease, least, most)
		}
		if n := len(r.losses()); n > 0 {
			t.Errorf("%d losses", n)
		}
		t.Logf("%d calls in the first lease time, then %.1f in each", first, perLease)
		r.close()
	})
}

// So many leases are due at once that others get the lock between the strides of a step.
func TestLeasesDueAtOnceAreAllRenewedAgain(t *testing.T) {
	const leases, rounds, lease, interval = 20_000, 3, 30 * s, 50 * ms
	renewals := make(chan int, leases)
	w, err := watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
		renewals <- len(keys)
		return all(watchdog.Renewed, keys)
	}, watchdog.Options[string]{RenewalsPerLease: float64(lease / interval)})
	if err != nil {
		t.Fatal(err)
	}
	kept := make([]*watchdog.Lease[string], 0, leases)
	for range leases {
		kept = append(kept, w.Keep("key", "group", lease, time.Now()))
	}
	limit := time.After(20 * s)
	for n := 0; n < rounds*leases; {
		select {
		case renewed := <-renewals:
			n += renewed
		case <-limit:
			t.Fatalf("%d renewals of %d leases; want %d for each", n, leases, rounds)
		}
	}
	for _, l := range kept {
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHundredThousandLeases(t *testing.T) {
	const leases = 100_000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	kept := make([]*watchdog.Lease[string], 0, leases)
	w, err := watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
		return all(watchdog.Renewed, keys)
	}, watchdog.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	for range leases {
		kept = append(kept, w.Keep("key", "group", time.Hour, time.Now()))
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines more after Keep", n-goroutines)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perLease := (float64(after.HeapAlloc) - float64(before.HeapAlloc) - 8*leases) / leases // less the slice kept
	t.Logf("%.0f B for each lease", perLease)
	if perLease > 200 {
		t.Errorf("%.0f B for each lease; want 200 at most", perLease)
	}
	for _, l := range kept {
		l.Stop()
	}
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestKeepAndStopAllocateLittle(t *testing.T) {
	w, err := watchdog.New(func(context.Context, string, []string) []watchdog.Outcome { return nil }, watchdog.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	pair := func() { w.Keep("key", "group", time.Hour, time.Now()).Stop() }
	pair()
	if n := testing.AllocsPerRun(1000, pair); n > 1 {
		t.Errorf("%.0f allocations for Keep and Stop; want the lease alone", n)
	}
}
