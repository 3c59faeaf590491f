package pubsub

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	connectTimeout = 10 * time.Second // Then an attempt to connect is left behind.
	maxSessions    = 3                // At once, those left behind included.
	backoffMax     = time.Second      // The longest pause between attempts.
	mostFlaps      = 2                // The failures that a connection counts at most that came up and was lost soon.
	backoffFirst   = 20 * time.Millisecond
	longest        = time.Hour // Between two looks when nothing is due.
)

// conn keeps one connection for its channels: one session after another, each
// on a fresh redis.PubSub. go-redis' own reconnecting is not used: it would
// subscribe again in one command that a single forbidden channel spoils, and
// would not say when messages were lost.
//
// The goroutine of manage makes all decisions and never does I/O, so it is
// never held up by a server that hangs. Calls of go-redis happen in the two
// goroutines of a session, which manage leaves behind when they are stuck.
type conn struct {
	hub  *Hub
	kick chan struct{} // Capacity 1: manage has to look now.

	// Guarded by Hub.mu.
	running   bool // manage runs.
	channels  map[string]*channel
	todo      *list.List   // The queued channels; all have subscriptions.
	idle      *list.List   // The confirmed channels without subscriptions, longest idle first.
	groups    [][]*channel // Parts of refused commands, to be asked for separately.
	refs      int          // Subscriptions.
	idleSince time.Time    // When refs became 0.
	session   *session     // The present one, or nil.
	sessions  int          // Sessions that have not ended, those left behind included.
	failures  int          // In a row; sets the pause before the next attempt.
	retryAt   time.Time    // No session is started before.
	lastErr   error        // Why there is no connection; nil once a channel is confirmed.
	wakeAt    time.Time    // When manage looks next by itself.
	notes     []note       // To be logged by manage.
}

// note writes a log record, when Hub.mu is free again.
type note func(*slog.Logger)

func newConn(h *Hub) *conn {
	return &conn{
		hub: h, kick: make(chan struct{}, 1), channels: make(map[string]*channel),
		todo: list.New(), idle: list.New(),
	}
}

// poke makes manage look now.
func (c *conn) poke() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// lookBy makes sure that manage looks at the time t or before.
func (c *conn) lookBy(t time.Time) {
	if t.Before(c.wakeAt) {
		c.poke()
	}
}

// manage runs until nothing was subscribed for Options.Linger or the hub is closed.
func (c *conn) manage() {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		wait, notes, more := c.step()
		for _, n := range notes {
			n(c.hub.opts.Logger)
		}
		if !more {
			return
		}
		timer.Reset(wait)
		select {
		case <-c.kick:
		case <-timer.C:
		}
	}
}

// step does all that is due, and returns when to look again, what to log, and
// whether to go on.
func (c *conn) step() (wait time.Duration, notes []note, more bool) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	defer func() { notes, c.notes = c.notes, nil }()
	now := time.Now()
	if c.hub.closed || c.refs == 0 && now.Sub(c.idleSince) >= c.hub.opts.Linger {
		c.retire()
		return 0, nil, false
	}
	if c.session != nil {
		if err := c.session.failed(now); err != nil {
			c.lose(err, now)
		}
	}
	if c.session != nil {
		c.session.feed(now)
	} else if c.mayConnect() && !now.Before(c.retryAt) {
		c.connect(now)
	}
	c.wakeAt = c.nextLook(now)
	return c.wakeAt.Sub(now), nil, true
}

// mayConnect reports whether there is something to subscribe and room for a
// session. When there is no room, the end of a session pokes.
func (c *conn) mayConnect() bool {
	return c.todo.Len() > 0 && c.sessions < maxSessions
}

// nextLook returns when something is due next if nobody pokes before.
func (c *conn) nextLook(now time.Time) time.Time {
	at := now.Add(longest)
	by := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if c.refs == 0 {
		by(c.idleSince.Add(c.hub.opts.Linger))
	}
	switch {
	case c.session != nil:
		by(c.session.deadline())
		if front := c.idle.Front(); front != nil && c.session.pending == nil {
			by(front.Value.(*channel).idleSince.Add(c.hub.opts.Linger))
		}
	case c.mayConnect():
		by(c.retryAt)
	}
	return at
}

// connect starts a session, whose first command makes the connection.
func (c *conn) connect(now time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{conn: c, cancel: cancel, started: now, commands: make(chan *command, 1)}
	first := c.nextCommand(now)
	s.pending = first
	c.session = s
	c.sessions++
	c.hub.wg.Go(func() { s.write(ctx, first) })
}

// lose gives up the session because of err and plans the next one.
func (c *conn) lose(err error, now time.Time) {
	s := c.session
	s.cancel()
	c.session, c.lastErr = nil, err
	c.noteLoss(s, err)
	if r, ok := c.hub.rdb.(interface{ ReloadState(context.Context) }); ok {
		// A cluster client does not notice by itself that a node is gone. The
		// call only asks for a reload and does not wait for it.
		r.ReloadState(context.Background())
	}
	if !s.up {
		c.refuseLogin(err)
	}
	c.requeue()
	switch {
	case !s.up:
		c.failures = max(c.failures, 1)
	case now.Sub(s.upSince) >= backoffMax:
		c.failures = 0
	default:
		// The server can be reached, and waiters miss messages meanwhile.
		c.failures = min(c.failures, mostFlaps)
	}
	c.retryAt = now.Add(backoff(c.failures))
	c.failures++
}

// refuseLogin ends the subscriptions that err leaves no hope for: all when the
// client is closed, and when the server refuses the login those that
// Subscribe has not returned yet. The others may outlive a change of password.
func (c *conn) refuseLogin(err error) {
	closed := errors.Is(err, redis.ErrClosed)
	if !closed && !isRefusal(err) {
		return
	}
	for _, ch := range c.channels {
		failure := subscribeError(ch.name, err)
		for _, s := range slices.Backward(ch.subs) { // leave fills the gap with a later one.
			if closed || !s.established {
				c.leave(s)
				s.end(failure)
			}
		}
	}
}

// retire ends the session and forgets the channels; none has a subscription.
func (c *conn) retire() {
	if c.session != nil {
		c.session.cancel()
		c.session = nil
	}
	c.requeue()
	c.failures, c.retryAt, c.lastErr = 0, time.Time{}, nil
	c.running = false
}

// noteLoss logs the first of several failures in a row louder than the rest.
func (c *conn) noteLoss(s *session, err error) {
	up, loud := s.up, c.failures <= 1
	c.notes = append(c.notes, func(l *slog.Logger) {
		switch {
		case up:
			l.Warn("pubsub: connection lost", slog.Any("error", err))
		case loud:
			l.Warn("pubsub: cannot connect", slog.Any("error", err))
		default:
			l.Debug("pubsub: cannot connect", slog.Any("error", err))
		}
	})
}

// backoff returns the pause before the next attempt after some failures in a
// row: none at first, then between half and all of a bound that doubles up to
// backoffMax, so that many clients do not come back at the same moment.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	bound := backoffMax
	if doublings := failures - 1; doublings < 10 {
		bound = min(backoffMax, backoffFirst<<doublings)
	}
	return bound/2 + rand.N(bound/2)
}
