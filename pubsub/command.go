package pubsub

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxNames is how many channels one command names at most.
const maxNames = 100

type verb uint8

const (
	ping verb = iota
	subscribe
	unsubscribe
)

// command is what is sent to the server. One is in flight at a time: then each
// answer belongs to it without counting, an UNSUBSCRIBE cannot overtake or be
// overtaken, and the commands that wait meanwhile are sent as one.
type command struct {
	verb     verb
	channels []*channel
	names    []string
	left     int // Answers that are still to come.
	sent     time.Time
}

// send writes the command. It may block as long as the client's timeouts allow.
func (m *command) send(ctx context.Context, ps *redis.PubSub) error {
	switch m.verb {
	case subscribe:
		return ps.Subscribe(ctx, m.names...)
	case unsubscribe:
		return ps.Unsubscribe(ctx, m.names...)
	default:
		return ps.Ping(ctx)
	}
}

func newCommand(v verb, now time.Time, channels []*channel) *command {
	m := &command{verb: v, channels: channels, left: max(len(channels), 1), sent: now}
	m.names = make([]string, len(channels))
	for i, ch := range channels {
		m.names[i] = ch.name
	}
	return m
}

// nextCommand returns what is to be sent now, or nil: SUBSCRIBE first, because
// somebody waits for it.
func (c *conn) nextCommand(now time.Time) *command {
	if chs := c.takeGroup(); len(chs) > 0 {
		return newCommand(subscribe, now, chs)
	}
	if chs := c.takeQueued(); len(chs) > 0 {
		return newCommand(subscribe, now, chs)
	}
	if chs := c.takeIdle(now); len(chs) > 0 {
		return newCommand(unsubscribe, now, chs)
	}
	return nil
}

// takeGroup returns a part of a refused command, without the channels that
// nobody waits on any more.
func (c *conn) takeGroup() []*channel {
	for len(c.groups) > 0 {
		last := len(c.groups) - 1
		group := c.groups[last]
		c.groups = c.groups[:last]
		chs := make([]*channel, 0, len(group))
		for _, ch := range group {
			if len(ch.subs) == 0 {
				c.forget(ch)
				continue
			}
			ch.state = asked
			chs = append(chs, ch)
		}
		if len(chs) > 0 {
			return chs
		}
	}
	return nil
}

// takeQueued returns the channels that have waited longest for a SUBSCRIBE.
func (c *conn) takeQueued() []*channel {
	chs := make([]*channel, 0, min(c.todo.Len(), maxNames))
	for range cap(chs) {
		ch := c.todo.Remove(c.todo.Front()).(*channel)
		ch.place, ch.state = nil, asked
		chs = append(chs, ch)
	}
	return chs
}

// takeIdle returns the channels that have been without subscriptions for Options.Linger.
func (c *conn) takeIdle(now time.Time) []*channel {
	var chs []*channel
	for front := c.idle.Front(); front != nil && len(chs) < maxNames; front = c.idle.Front() {
		ch := front.Value.(*channel)
		if now.Sub(ch.idleSince) < c.hub.opts.Linger {
			break
		}
		c.idle.Remove(front)
		ch.place, ch.state = nil, leaving
		chs = append(chs, ch)
	}
	return chs
}

// subscribed handles the server's confirmation of a SUBSCRIBE for one channel.
func (c *conn) subscribed(s *session, name string) {
	ch := c.channels[name]
	if ch == nil || ch.state != asked {
		return
	}
	if c.lastErr != nil {
		c.lastErr = nil
		c.notes = append(c.notes, func(l *slog.Logger) { l.Info("pubsub: connected again") })
	}
	c.confirm(ch)
	s.answered(subscribe)
}

// unsubscribed handles the server's confirmation that one channel is not
// subscribed any more. Nobody asked for it if the channel is confirmed: then
// the server has dropped it, and it is subscribed again like one that was
// joined while the UNSUBSCRIBE was under way.
func (c *conn) unsubscribed(s *session, name string) {
	ch := c.channels[name]
	if ch == nil || ch.state != leaving && ch.state != confirmed {
		return
	}
	if ch.state == leaving {
		s.answered(unsubscribe)
	} else if ch.place != nil {
		c.idle.Remove(ch.place)
	}
	if len(ch.subs) == 0 {
		c.forget(ch)
		return
	}
	c.enqueue(ch)
	c.poke()
}

// refused handles an error that the server sent in place of all answers to m.
// A refused SUBSCRIBE of several channels has subscribed none of them and does
// not say which is to blame: its halves are asked for separately.
func (c *conn) refused(m *command, err error) {
	switch {
	case m.verb == unsubscribe:
		// They are still subscribed. Try again after another Linger.
		for _, ch := range m.channels {
			if ch.state == leaving {
				c.confirm(ch)
			}
		}
	case m.verb == subscribe && len(m.channels) == 1:
		ch := m.channels[0]
		c.endSubs(ch, subscribeError(ch.name, err))
		c.forget(ch)
		c.notes = append(c.notes, func(l *slog.Logger) {
			l.Debug("pubsub: channel refused", slog.String("channel", ch.name), slog.Any("error", err))
		})
	case m.verb == subscribe:
		for _, ch := range m.channels {
			ch.state = queued
		}
		half := len(m.channels) / 2
		c.groups = append(c.groups, m.channels[half:], m.channels[:half])
	}
}
