package pubsub

import (
	"container/list"
	"time"
)

// state is where a channel stands on the present connection. Commands are sent
// one at a time, so a channel is never named by two commands in flight:
//
//	queued -> asked -> confirmed -> leaving -> (gone, or queued if it was joined meanwhile)
//
// A lost connection takes every channel back to queued.
type state uint8

const (
	queued    state = iota // Waits to be named in a SUBSCRIBE.
	asked                  // Named in a SUBSCRIBE that is not answered yet.
	confirmed              // Subscribed, says the server.
	leaving                // Named in an UNSUBSCRIBE that is not answered yet.
)

// channel is a name that is, was or will be subscribed. Guarded by Hub.mu.
type channel struct {
	conn  *conn
	name  string
	subs  []*Subscription
	state state

	// place is the channel's element in conn.todo (when queued) or in
	// conn.idle (when confirmed and without subscriptions), else nil.
	place     *list.Element
	idleSince time.Time
}

// join adds a subscription to the channel called name.
func (c *conn) join(name string) *Subscription {
	ch := c.channels[name]
	if ch == nil {
		ch = &channel{conn: c, name: name}
		c.channels[name] = ch
		c.enqueue(ch)
		c.poke()
	} else if ch.state == confirmed && ch.place != nil {
		c.idle.Remove(ch.place)
		ch.place = nil
	}
	s := &Subscription{ch: ch, wake: make(chan struct{}, 1), index: len(ch.subs)}
	ch.subs = append(ch.subs, s)
	c.refs++
	return s
}

// leave takes s out of its channel.
func (c *conn) leave(s *Subscription) {
	ch := s.ch
	last := len(ch.subs) - 1
	ch.subs[s.index] = ch.subs[last]
	ch.subs[s.index].index = s.index
	ch.subs[last] = nil
	ch.subs = ch.subs[:last]
	c.unref(1)
	if last == 0 {
		c.abandon(ch)
	}
}

// abandon decides what becomes of a channel that nobody waits on any more.
func (c *conn) abandon(ch *channel) {
	switch {
	case ch.state == confirmed:
		ch.idleSince = time.Now()
		ch.place = c.idle.PushBack(ch)
		c.lookBy(ch.idleSince.Add(c.hub.opts.Linger))
	case ch.state == queued && ch.place != nil:
		c.todo.Remove(ch.place)
		c.forget(ch)
	default:
		// It is part of a command or of a refused group: whoever handles
		// that next sees that it has no subscriptions.
	}
}

// unref counts n subscriptions less. With the last one the connection's linger begins.
func (c *conn) unref(n int) {
	c.refs -= n
	if c.refs == 0 {
		c.idleSince = time.Now()
		c.lookBy(c.idleSince.Add(c.hub.opts.Linger))
	}
}

// enqueue lets the next SUBSCRIBE name ch.
func (c *conn) enqueue(ch *channel) {
	ch.state = queued
	ch.place = c.todo.PushBack(ch)
}

// forget removes a channel without subscriptions.
func (c *conn) forget(ch *channel) {
	ch.place = nil
	delete(c.channels, ch.name)
}

// requeue takes all channels back to queued after the connection was lost, and
// forgets those that nobody waits on.
func (c *conn) requeue() {
	c.todo.Init()
	c.idle.Init()
	c.groups = nil
	for _, ch := range c.channels {
		if len(ch.subs) == 0 {
			c.forget(ch)
		} else {
			c.enqueue(ch)
		}
	}
}

// endSubs ends all subscriptions of ch with err. The caller sees to ch itself.
func (c *conn) endSubs(ch *channel, err error) {
	for i, s := range ch.subs {
		ch.subs[i] = nil
		s.end(err)
	}
	n := len(ch.subs)
	ch.subs = nil
	if n > 0 {
		c.unref(n)
	}
}

// confirm makes ch confirmed and wakes all its waiters: those that wait for
// the confirmation, and those that may have missed messages before it.
func (c *conn) confirm(ch *channel) {
	ch.state = confirmed
	ch.fire()
	if len(ch.subs) == 0 {
		c.abandon(ch)
	}
}

// fire wakes all waiters of ch.
func (ch *channel) fire() {
	for _, s := range ch.subs {
		s.fire()
	}
}
