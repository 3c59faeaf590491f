package rlock

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// How often a sweep that got no answer is tried again.
const (
	firstSweepPause = 50 * time.Millisecond
	lastSweepPause  = time.Second
)

// ghost is an owner id that may have a field in Redis, or may still get one,
// with nobody behind it: an acquire whose caller gave up before the answer, or
// a release that was not answered.
//
// Until it is resolved, attempts of the same client on the same lock name it as
// a predecessor, so that it does not block them, and it is swept: a release for
// its id is sent until one is answered after the deadline, past which no copy
// of the acquire can create the field any more. Its id is never used again.
//
// All fields below c are fixed, but for those guarded by Client.mu.
type ghost struct {
	c        *Client
	key, id  string
	deadline int64     // of the acquire, by the server's clock; 0: no copy can arrive any more
	sweepAt  time.Time // when that has passed by our estimate
	expires  time.Time // the end of the longest lease that it can have

	// Guarded by Client.mu.
	resolved bool
	listed   bool
	timer    *time.Timer
	pause    time.Duration
}

// maxPredecessors bounds the ids that one attempt names. More can pile up only
// while the server answers nothing at all; they are swept all the same.
const maxPredecessors = 16

// ghostsOf returns the owner ids that an attempt on a key may replace.
func (c *Client) ghostsOf(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[key]
	if e == nil {
		return nil
	}
	var ids []string
	for id := range e.ghosts {
		if len(ids) == maxPredecessors {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// haunt lists a ghost and arranges its sweeping, unless its answer has come
// meanwhile. Client.Close waits for the sweep, within its bound.
func (c *Client) haunt(g *ghost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.resolved {
		return
	}
	e := c.entry(g.key)
	if e.ghosts[g.id] != nil {
		return // it is being swept
	}
	if e.ghosts == nil {
		e.ghosts = make(map[string]*ghost)
	}
	e.ghosts[g.id] = g
	g.listed = true
	c.calls.add()
	// Never at once: timers that are due at once crash the race detector of Go
	// 1.26 when several of them run in one synctest bubble (golang/go#78156).
	g.timer = time.AfterFunc(max(time.Until(g.sweepAt), time.Nanosecond), g.sweep)
}

// abandon releases in the background what an owner id may hold: a grant that
// nobody takes, or a release that got no answer.
func (c *Client) abandon(key, id string, lease time.Duration) {
	now := time.Now()
	c.haunt(&ghost{c: c, key: key, id: id, sweepAt: now, expires: now.Add(lease)})
}

// answered takes the answer of an acquire that was left behind.
func (g *ghost) answered(reply script.AcquireReply, err error) {
	switch {
	case unanswered(err):
		// Nothing new: the sweep is due at the deadline.
	case err == nil && reply.Code == script.Granted:
		g.release(true)
	default:
		g.resolve()
	}
}

// sweep sends a release for the id and resolves the ghost if the answer allows.
func (g *ghost) sweep() {
	if g.beginSweep() {
		defer g.c.calls.done()
		g.release(false)
	}
}

// beginSweep reports whether there is something to sweep. If so, the sweep
// counts as under way, also when an answer resolves the ghost meanwhile.
func (g *ghost) beginSweep() bool {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if g.resolved {
		return false
	}
	g.c.calls.add()
	return true
}

// release sends one release for the id. The only copy of the acquire was
// executed already if its answer has come; otherwise it can still arrive until
// the deadline, and a release before that settles nothing if it finds no field.
func (g *ghost) release(executed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), g.c.opts.UnlockTimeout)
	defer cancel()
	sent := time.Now()
	reply, err := script.Release{
		Key: g.key, Owner: g.id, Depth: 1, Channel: wire.Channel(g.key), Publish: g.c.publish,
	}.Send(ctx, g.c.rdb)
	g.c.clock.observe(sent, time.Now(), reply.Now)

	early := err == nil && !executed && reply.Now <= g.deadline
	switch {
	case err == nil && reply.Code == script.Released,
		err == nil && !early,
		!time.Now().Before(g.expires),
		err != nil && !unanswered(err) && !script.Passing(err):
		g.resolve()
	case early:
		g.again(time.Duration(g.deadline-reply.Now+1) * time.Millisecond)
	default:
		g.again(0)
	}
}

// again arms the next sweep: after the given time, or with a growing pause.
func (g *ghost) again(after time.Duration) {
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.resolved || g.timer == nil {
		return
	}
	if after == 0 {
		g.pause = min(max(2*g.pause, firstSweepPause), lastSweepPause)
		after = g.pause
	}
	g.timer.Reset(after)
}

// resolve forgets the ghost: it has no field and will never get one.
func (g *ghost) resolve() {
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.resolved {
		return
	}
	g.resolved = true
	if !g.listed {
		return
	}
	g.timer.Stop()
	c.calls.done()
	e := c.names[g.key]
	delete(e.ghosts, g.id)
	c.dropIfUnused(e)
}

// dropGhosts gives up sweeping: what is left ends with its lease.
func (c *Client) dropGhosts() {
	c.mu.Lock()
	var all []*ghost
	for _, e := range c.names {
		for _, g := range e.ghosts {
			all = append(all, g)
		}
	}
	c.mu.Unlock()
	for _, g := range all {
		g.resolve()
	}
}
