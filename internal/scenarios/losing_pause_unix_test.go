//go:build unix && scenarios

package scenarios_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// A process that is stopped for longer than its lease wakes up as nobody: its
// renewal makes nothing again, and its release touches nothing.
func TestB032ALateRenewalMakesNothingAgain(t *testing.T) {
	t.Parallel()
	stopped := leases(t, watchdogLease, 3, 2)
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: long})
	holder := start(t, "holder", r.Addr(), watchdogLease)
	holder.mustLock(r.name)
	holder.pause()
	since := time.Now()
	h := r.mustLock(lock)
	r.wantHeld(h, "1")
	r.mustUnlock(h)
	pass(stopped - time.Since(since))
	r.wantFree()
	holder.resume()
	if got := holder.ask("look", r.name); got[0] != "lost" {
		t.Errorf("its first look says %q", got)
	}
	r.staysFree()
	if got := holder.ask("unlock", r.name); got[0] != "lost" {
		t.Errorf("its Unlock says %q", got)
	}
	r.wantFree()
}

var _ = addProgram("guarded loop", guardedLoop)

// guardedLoop is a program that does something again and again under a lock,
// and looks before each time, in the way that its line names:
//
//	err NAME | context NAME | lost NAME
//
// It answers "held OWNER" and, when a look has told the loss, "lost AT STATE":
// AT is when the last look began that still said held, and STATE what Unlock said.
func guardedLoop(p *program) error {
	for p.lines.Scan() {
		var look, name string
		if _, err := fmt.Sscan(p.lines.Text(), &look, &name); err != nil {
			return err
		}
		h, err := p.client.NewRLock(name).TryLock(context.Background(), stuck)
		if err != nil {
			return err
		}
		last := time.Now()
		p.say("held", h.Owner())
		held := looks[look](h)
		for began := time.Now(); held(); began = time.Now() {
			last = began // here would be the work
		}
		p.say("lost", last.UnixNano(), stateOf(h.Unlock(context.Background()), "ok"))
	}
	return p.lines.Err()
}

// looks are the ways to ask whether a hold is held.
var looks = map[string]func(*rlock.Hold) func() bool{
	"err": func(h *rlock.Hold) func() bool {
		return func() bool { return h.Err() == nil }
	},
	"context": func(h *rlock.Hold) func() bool {
		ctx := h.Context(context.Background())
		return func() bool { return ctx.Err() == nil && !isClosed(ctx.Done()) }
	},
	"lost": func(h *rlock.Hold) func() bool {
		return func() bool { return !isClosed(h.Lost()) }
	},
}

// After a stop of any length, the look before the next side effect says lost.
func TestB040AProcessThatWakesUpLooksBeforeItActs(t *testing.T) {
	t.Parallel()
	const lease = 300 * time.Millisecond
	r := newRig(t)
	c := r.client(rlock.Options{Lease: long})
	loop := start(t, "guarded loop", r.Addr(), lease)
	for round := range rounds(t, 10, 1) {
		for look := range looks {
			name := r.prefix + look + strconv.Itoa(round)
			if got := loop.ask(look, name); got[0] != "held" {
				t.Fatalf("%s: the process says %q", look, got)
			}
			loop.pause()
			since := time.Now()
			h := r.mustLock(c.NewRLock(name))
			acquired := time.Now()
			pass(3*lease - time.Since(since))
			loop.resume()
			got := loop.hear()
			if len(got) != 3 || got[0] != "lost" || got[2] != "lost" {
				t.Fatalf("%s: the process says %q", look, got)
			}
			ns, err := strconv.ParseInt(got[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if late := time.Unix(0, ns).Sub(acquired); late >= 0 {
				t.Errorf("%s: a look %v after the next one came in said held", look, late)
			}
			r.mustUnlock(h)
		}
	}
	// It has neither crashed nor is it stuck.
	if err := loop.input.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, stuck, func() bool { return len(loop.ended) == 1 }, "the process ends")
	err := <-loop.ended
	loop.ended <- err // kill looks at it too
	if err != nil {
		t.Errorf("the process ended with %v", err)
	}
}
