//go:build unix && scenarios

package scenarios_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/rlock"
)

var _ = addProgram("waiters", waiters)

// waiters is a process in which any number of goroutines wait. For each line,
// the name of a lock, it says "got NAME" when it has had it, and "failed TEXT"
// otherwise.
func waiters(p *program) error {
	var group sync.WaitGroup
	for p.lines.Scan() {
		name := p.lines.Text()
		group.Go(func() {
			err := p.client.NewRLock(name).Do(context.Background(), func(context.Context) error { return nil })
			if err != nil {
				p.say("failed", err)
				return
			}
			p.say("got", name)
		})
	}
	group.Wait()
	return p.lines.Err()
}

// The process of the waiters is stopped while messages pile up for it.
func TestB025MessagesPileUpForAStoppedProcess(t *testing.T) {
	t.Parallel()
	const names, messages, stopped = 20, 10_000, 2 * time.Second
	r := newRig(t)
	holder := r.client(rlock.Options{Lease: long})
	p := start(t, "waiters", r.Addr(), long)
	held := make([]*rlock.Hold, names)
	for i := range held {
		name := r.prefix + strconv.Itoa(i)
		held[i] = r.mustLock(holder.NewRLock(name))
		p.tell(name)
		r.awaitSubscribers(name, 1)
	}

	p.pause()
	began := time.Now()
	publish(t, r, messages, func(i int) string { return held[i%names].Name() })
	for _, h := range held[:names/2] { // while nobody can hear of it
		r.mustUnlock(h)
	}
	pass(stopped - time.Since(began))
	p.resume()
	resumed := time.Now()
	for _, h := range held[names/2:] { // among what has piled up
		r.mustUnlock(h)
	}
	for range names {
		if got := p.hear(); got[0] != "got" {
			t.Errorf("a waiter said %q", strings.Join(got, " "))
		}
	}
	took := time.Since(resumed)
	t.Logf("all %d waiters had their lock %v after the process went on", names, took)
	if took > recheck/2 {
		t.Errorf("the waiters needed %v: some were stuck until they looked for themselves", took)
	}
}

// publish sends unlock messages, one in two of them to a channel to which
// nobody listens, as a busy server has them.
func publish(t *testing.T, r *rig, n int, name func(i int) string) {
	t.Helper()
	const batch = 1000
	for sent := 0; sent < n; sent += batch {
		_, err := r.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for i := sent; i < min(sent+batch, n); i++ {
				channel := wire.Channel(name(i))
				if i%2 == 1 {
					channel = wire.Channel(r.prefix + "other:" + strconv.Itoa(i))
				}
				pipe.Publish(t.Context(), channel, wire.ReleasedMessage)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
