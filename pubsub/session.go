package pubsub

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// session is one connection from the attempt to make it to its end. The
// goroutine of write owns the redis.PubSub: it connects, sends commands, and
// closes it; read receives. When conn.session is another one, this session has
// been left behind: what it does then changes nothing.
type session struct {
	conn     *conn
	cancel   context.CancelFunc // Makes write end.
	commands chan *command      // From manage to write.

	// Guarded by Hub.mu.
	started time.Time
	up      bool // Connected, and the first command is written.
	upSince time.Time
	heard   time.Time // When the server last sent anything.
	pending *command  // The command that is not fully answered, or nil.
	err     error     // Why the connection is unusable.
}

// noDial is a context that has ended. With it go-redis reads and writes on the
// connection that it has, for it looks only at a context's deadline there, but
// it cannot dial another one: inside a failing read or write it would connect
// and subscribe again by itself.
var noDial = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// write connects with the first command and then sends those that manage hands
// over, until ctx ends. It may be stuck in go-redis; nobody waits for it but
// Hub.Close, for a limited time.
func (s *session) write(ctx context.Context, first *command) {
	defer s.ended()
	ps := s.conn.hub.rdb.Subscribe(ctx) // No channels: no I/O yet.
	defer ps.Close()                    //nolint:errcheck // Nothing can be done about it.
	if err := first.send(ctx, ps); err != nil {
		s.fail(err)
		return
	}
	if !s.begin() {
		return
	}
	s.conn.hub.wg.Go(func() { s.read(ps) }) //nolint:contextcheck // Closing ps ends it, and its context is noDial.
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.commands:
			if err := m.send(noDial, ps); err != nil { //nolint:contextcheck // See noDial.
				s.fail(err)
				return
			}
		}
	}
}

// read receives until the connection fails or write closes it. It sets no
// deadline, because a read that ends in the middle of an answer would make the
// rest of the stream unreadable: manage watches the time, and closing ps ends
// the read.
func (s *session) read(ps *redis.PubSub) {
	for {
		msg, err := ps.ReceiveTimeout(noDial, 0)
		if !s.receive(msg, err) {
			return
		}
	}
}

// begin marks the connection as made. It reports false if the session has been
// left behind.
func (s *session) begin() bool {
	mu := &s.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	if s.conn.session != s {
		return false
	}
	now := time.Now()
	s.up, s.upSince, s.heard, s.pending.sent = true, now, now, now
	s.conn.poke()
	return true
}

// ended makes room for another session.
func (s *session) ended() {
	mu := &s.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	s.conn.sessions--
	s.conn.poke()
}

// fail records why the connection is unusable; the first reason counts.
func (s *session) fail(err error) {
	mu := &s.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	s.failLocked(err)
}

func (s *session) failLocked(err error) {
	if s.err == nil {
		s.err = err
		s.conn.poke()
	}
}

// receive handles what ReceiveTimeout returned, and reports whether to read on.
// It never blocks on a waiter.
func (s *session) receive(msg any, err error) bool {
	c := s.conn
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.session != s {
		return false
	}
	if err != nil {
		return s.receiveError(err)
	}
	s.heard = time.Now()
	switch m := msg.(type) {
	case *redis.Message:
		if ch := c.channels[m.Channel]; ch != nil {
			ch.fire()
		}
	case *redis.Pong:
		s.answered(ping)
	case *redis.Subscription:
		if m.Kind == "subscribe" {
			c.subscribed(s, m.Channel)
		} else {
			c.unsubscribed(s, m.Channel)
		}
	}
	return true
}

// receiveError handles an error of ReceiveTimeout: the server's answer to the
// pending command, or the end of the connection.
func (s *session) receiveError(err error) bool {
	if s.pending == nil || !isRefusal(err) {
		s.failLocked(err)
		return false
	}
	m := s.pending
	s.pending, s.heard = nil, time.Now()
	s.conn.refused(m, err)
	s.conn.poke()
	return true
}

// answered counts one answer to the pending command. With the last one the
// next command may be sent.
func (s *session) answered(v verb) {
	if s.pending == nil || s.pending.verb != v {
		return
	}
	s.pending.left--
	if s.pending.left == 0 {
		s.pending = nil
		s.conn.poke()
	}
}

// failed returns why the session has to be given up, or nil.
func (s *session) failed(now time.Time) error {
	switch {
	case s.err != nil:
		return s.err
	case s.pending == nil || now.Before(s.deadline()):
		return nil
	case s.up:
		return ErrSilent
	default:
		return errConnectTimeout
	}
}

// deadline returns when manage has to look at the session: when it is to be
// given up, or when a PING is due. The connection is dead only if a command
// had PongWait to be answered: a process that was stopped for a while does not
// take its own silence for the server's.
func (s *session) deadline() time.Time {
	o := &s.conn.hub.opts
	switch {
	case !s.up:
		return s.started.Add(connectTimeout)
	case s.pending == nil:
		return s.heard.Add(o.PingEvery)
	}
	dead, fair := s.heard.Add(o.PingEvery+o.PongWait), s.pending.sent.Add(o.PongWait)
	if fair.After(dead) {
		return fair
	}
	return dead
}

// feed sends the next command when none is pending. commands has room for it:
// the one before has been answered, so write has taken it out.
func (s *session) feed(now time.Time) {
	if s.pending != nil {
		return
	}
	s.pending = s.conn.nextCommand(now)
	if s.pending == nil && !now.Before(s.deadline()) {
		s.pending = newCommand(ping, now, nil)
	}
	if s.pending != nil {
		s.commands <- s.pending
	}
}
