package rlock

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/pubsub"
)

// entry is what a client knows of one name: its own holder, and the queue of
// its goroutines that wait. It exists while there is one of these, or an
// attempt without an answer.
//
// All fields are guarded by Client.mu. Only the head of the queue sends
// commands and changes sub, so between two of its own steps it alone moves what
// it has read.
type entry struct {
	key    string
	holder *owner // ours, live as far as we know
	fixed  bool   // no watchdog would tell that its key has vanished
	queue  []*waiter
	ghosts map[string]*ghost // by owner id

	ask     bool                 // something happened since the last attempt: make one
	look    time.Time            // when the head looks though nothing happened; zero: never
	freeAt  time.Time            // when the TTL that Redis reported last ends; zero if unknown
	failure error                // of the last attempt, nil when Redis answered it
	heard   bool                 // Redis, or our own holder, has said in this queue's time that the lock is held
	sub     *pubsub.Subscription // the head's, inherited by the next
	refused bool                 // the server refuses subscriptions to this channel
}

// waiter is one goroutine in the queue.
type waiter struct {
	e      *entry
	signal chan struct{} // capacity 1: look again, you may be the head

	// interrupt ends the subscribing that the head is blocked in, if it is.
	// Guarded by Client.mu.
	interrupt context.CancelFunc
}

// entry returns the entry of a key and makes it if needed. Called with c.mu
// held; whoever called it adds a reason for it to exist before unlocking.
func (c *Client) entry(key string) *entry {
	e := c.names[key]
	if e == nil {
		e = &entry{key: key}
		c.names[key] = e
	}
	return e
}

// dropIfUnused forgets an entry that has no reason to exist. Called with c.mu held.
func (c *Client) dropIfUnused(e *entry) {
	if e.holder == nil && len(e.queue) == 0 && len(e.ghosts) == 0 {
		delete(c.names, e.key)
	}
}

// join puts the caller at the end of the queue for a key. It returns ErrClosed
// when the client takes no new locks.
func (c *Client) join(key string) (*waiter, error) {
	w := &waiter{signal: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open {
		return nil, ErrClosed
	}
	w.e = c.entry(key)
	if len(w.e.queue) == 0 {
		// While our own hold has the lock there is nothing to ask: its end
		// signals the head.
		w.e.ask = w.e.holder == nil
		w.e.freeAt, w.e.failure = time.Time{}, nil
		w.e.heard = w.e.holder != nil
		c.waited++
		c.lookAfterHolder(w.e)
	}
	w.e.queue = append(w.e.queue, w)
	return w, nil
}

// leave takes the waiter out of the queue. If it was the head, the next one
// becomes head and inherits the subscription and whatever the head had noticed
// and not acted upon: entry.ask is still set then.
func (c *Client) leave(w *waiter) {
	if sub := c.takeOut(w); sub != nil {
		sub.Close()
	}
}

// takeOut does the bookkeeping of leave. It returns the subscription if nobody
// needs it any more.
func (c *Client) takeOut(w *waiter) *pubsub.Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := w.e
	for i, other := range e.queue {
		if other != w {
			continue
		}
		copy(e.queue[i:], e.queue[i+1:])
		e.queue[len(e.queue)-1] = nil
		e.queue = e.queue[:len(e.queue)-1]
		if i == 0 && len(e.queue) > 0 {
			e.queue[0].wake()
		}
		break
	}
	if len(e.queue) > 0 {
		return nil
	}
	sub := e.sub
	e.queue, e.sub, e.refused = nil, nil, false
	c.waited--
	c.dropIfUnused(e)
	return sub
}

// heads reports whether the waiter is the head of its queue.
func (c *Client) heads(w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.e.queue[0] == w
}

// wake tells the waiter to look again. It never blocks.
func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// begin records that an owner has the lock. It returns ErrClosed, and records
// nothing, when the client takes no new locks. If this client knew of an owner
// that had the lock, the field of the one that Redis granted it to earlier is
// gone: begin returns it as replaced, or refuses the new one with errTaken when
// that was the earlier one and its reply was overtaken. Granted in the same
// millisecond, nobody can tell: a renewal will. (Should the server's clock step
// back, grants are refused until the old holder has ended.)
func (c *Client) begin(o *owner, watched bool) (replaced *owner, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open {
		return nil, ErrClosed
	}
	e := c.entry(o.key)
	switch {
	case e.holder == nil:
		c.held++
	case e.holder.granted > o.granted:
		return nil, errTaken
	case e.holder.granted == o.granted:
		// The other one is most likely being unlocked: in Redis it is over.
	default:
		replaced = e.holder
	}
	e.holder, e.fixed = o, !watched
	e.ask, e.failure = false, nil
	c.lookAfterHolder(e)
	return replaced, nil
}

// lookAfterHolder sets when the head looks though nothing happened, while a
// holder of ours has the lock: never, if its renewals do so. Called with c.mu
// held.
func (c *Client) lookAfterHolder(e *entry) {
	e.look = time.Time{}
	if e.holder != nil && e.fixed {
		e.look = time.Now().Add(c.recheck())
	}
}

// end records that an owner has the lock no longer, or that nobody knows: the
// head of the queue goes by Redis alone from here. When the release reached
// subscribers, the message that wakes the heads of other clients wakes ours
// too; it looks by itself only if the message does not come soon, which is fair
// to the others and saves the attempt that a second wake-up would cost.
func (c *Client) end(o *owner, published bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[o.key]
	if e == nil || e.holder != o {
		return // another owner of ours has it already, or it was recorded before
	}
	e.holder = nil
	c.held--
	if c.held == 0 && c.idle != nil {
		close(c.idle)
	}
	if len(e.queue) == 0 {
		c.dropIfUnused(e)
		return
	}
	e.freeAt = time.Time{}
	if published && e.sub != nil {
		e.look = time.Now().Add(messageGrace)
	} else {
		e.ask = true
	}
	e.interruptHead()
	e.queue[0].wake()
}

// interruptHead ends the subscribing that the head may be blocked in. Called
// with Client.mu held.
func (e *entry) interruptHead() {
	if len(e.queue) > 0 && e.queue[0].interrupt != nil {
		e.queue[0].interrupt()
	}
}
