package script_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/latchkey-go/latchkey/internal/script"
)

// partyState is what a party is doing, as far as it knows itself.
type partyState string

const (
	asking  partyState = "asking"  // its outermost acquire is under way
	holding partyState = "holding" // granted, and not given up
	freeing partyState = "freeing" // its last release is under way
	ghostly partyState = "ghost"   // nobody stands behind it, and it may have a field
	over    partyState = "over"    // it has none and will never get one
)

// party is one owner id, and the client-side knowledge of it.
type party struct {
	id       string
	state    partyState
	deadline int // of the latest copy that can create its field
	until    int // the hold is believed in before this tick
	holds    int

	op   int // the operation that waits for an answer, 0 for none
	ops  int
	wait request // that operation's message, to be sent again
	seq  int     // of the last message that changes the count

	freed    bool // a release of the last hold was sent
	executed int  // the highest seq that the server has executed
	unclear  bool // the count in Redis may not be that of the holds: a copy was executed late, or one was given up
}

// believes reports whether the party believes that it has the lock.
func (p *party) believes(now int) bool { return p.state == holding && now < p.until }

// issue makes a new operation and its message.
func (p *party) issue(m request, now int) request {
	p.ops++
	p.op = p.ops
	if m.kind != renew {
		p.seq++
	}
	m.party, m.op, m.seq, m.sent = p, p.op, p.seq, now
	p.wait = m
	return m
}

// again returns another copy of the message whose answer is waited for.
func (p *party) again(now int) request {
	p.wait.sent = now
	return p.wait
}

// client is one process: its parties that are not over.
type client struct {
	name    string
	parties []*party
	last    int
}

// maxParties bounds the parties of a client that are not over.
const maxParties = 4

// start begins an outermost acquisition.
func (c *client) start(rng *rand.Rand, now int) request {
	c.last++
	p := &party{id: fmt.Sprintf("%s:%d", c.name, c.last), state: asking, deadline: now + rng.IntN(5)}
	var predecessors []string
	for _, other := range c.parties {
		if other.state == ghostly && rng.IntN(4) > 0 {
			predecessors = append(predecessors, other.id)
		}
	}
	c.parties = append(c.parties, p)
	return p.issue(request{
		kind: acquire, depth: 1, lease: 1 + rng.IntN(6), deadline: p.deadline, predecessors: predecessors,
	}, now)
}

// pick returns one of its parties, mostly the holder if there is one, or nil for
// a new one.
func (c *client) pick(rng *rand.Rand) *party {
	holder := slices.IndexFunc(c.parties, func(p *party) bool { return p.state == holding })
	if holder >= 0 && rng.IntN(3) > 0 {
		return c.parties[holder]
	}
	if n := rng.IntN(maxParties); n < len(c.parties) {
		return c.parties[n]
	}
	return nil
}

// forget drops the parties that are over.
func (c *client) forget() {
	c.parties = slices.DeleteFunc(c.parties, func(p *party) bool { return p.state == over })
}

// act does the next thing, by chance, and returns the message that it sends.
func (p *party) act(rng *rand.Rand, now int) (m request, sends bool) {
	if p.state == holding && !p.believes(now) {
		p.lose()
		return m, false
	}
	if p.op != 0 {
		switch n := rng.IntN(20); {
		case n < 14:
			return m, false // it waits
		case n < 17:
			return p.again(now), true
		}
	}
	switch p.state {
	case asking:
		p.state, p.op = ghostly, 0
		return m, false
	case freeing, ghostly:
		p.state = ghostly
		if rng.IntN(3) == 0 {
			return p.free(now), true
		}
	case holding:
		if p.op != 0 {
			return p.giveUp(now)
		}
		return p.use(rng, now), true
	}
	return m, false
}

// lose ends a hold that is lost. Its release is sent all the same.
func (p *party) lose() { p.state, p.op, p.holds = ghostly, 0, 0 }

// free sends the release of the last hold, or a sweep.
func (p *party) free(now int) request {
	p.freed = true
	return p.issue(request{kind: release, depth: 1}, now)
}

// use does something with a hold: all that its owner may do while nothing
// waits for an answer.
func (p *party) use(rng *rand.Rand, now int) request {
	switch {
	case rng.IntN(3) == 0 && p.holds < 4:
		p.holds++
		return p.issue(request{kind: acquire, depth: p.holds, lease: 1 + rng.IntN(6), deadline: noDeadline}, now)
	case rng.IntN(3) == 0:
		return p.issue(request{kind: renew, lease: 1 + rng.IntN(6)}, now)
	case p.holds > 1:
		p.holds--
		return p.issue(request{kind: release, depth: p.holds + 1}, now)
	}
	p.holds, p.state = 0, freeing
	return p.free(now)
}

// giveUp stops waiting for an answer while others of the owner's holds are
// open. An inner hold that was not granted is undone.
func (p *party) giveUp(now int) (m request, sends bool) {
	given := p.wait
	p.op = 0
	switch given.kind {
	case acquire:
		p.holds--
		return p.issue(request{kind: release, depth: p.holds + 1}, now), true
	case release:
		p.unclear = true
	case renew:
	}
	return m, false
}

// take takes an answer. One that nobody waits for any more is ignored, unless
// it brings a grant or settles a ghost.
func (p *party) take(m request, got outcome, now, answered int) (again request, sends bool) {
	if p.state == ghostly && m.kind == release && m.depth == 1 && answered > p.deadline {
		p.state = over
	}
	if p.op != m.op {
		return again, false
	}
	p.op = 0
	switch m.kind {
	case acquire:
		return p.takeAcquired(m, got.acquired, now)
	case release:
		if p.state == freeing {
			// A copy of the acquire may still create the field before its deadline.
			p.state = ghostly
			if answered > p.deadline {
				p.state = over
			}
		}
		if p.state == holding && got.released == script.Gone {
			p.lose()
		}
	case renew:
		if got.renewed == script.RenewGone {
			p.lose()
		} else if p.believes(now) {
			p.until = max(p.until, m.sent+m.lease)
		}
	}
	return again, false
}

func (p *party) takeAcquired(m request, code script.AcquireCode, now int) (again request, sends bool) {
	switch {
	case p.state == asking && code == script.Late:
		// The same id may be used once more: that copy was refused.
		p.deadline = now + 1
		m.deadline = p.deadline
		return p.issue(m, now), true
	case p.state == asking && code == script.Granted && now < m.sent+m.lease:
		p.state, p.holds, p.until = holding, 1, m.sent+m.lease
	case p.state == asking && code == script.Held:
		p.state = over
	case p.state == asking:
		p.state = ghostly
	case code == script.Granted:
		if p.believes(now) {
			p.until = max(p.until, m.sent+m.lease)
		}
	default:
		p.lose()
	}
	return again, false
}
