package pubsub

import "context"

// Subscription is one waiter's share of a channel, made by Hub.Subscribe. Its
// methods are safe for concurrent use. The zero value cannot be used.
type Subscription struct {
	ch   *channel
	wake chan struct{}

	// Guarded by Hub.mu.
	index       int   // Place in ch.subs, -1 once the subscription has ended.
	established bool  // Subscribe has returned it.
	err         error // Why it has ended.
}

// Wake returns the channel that the waiter sleeps on, the same at each call.
// It has room for one value and holds one when, since the last receive,
// something was published, the channel was subscribed again after the
// connection was lost, or the subscription has ended (see Err). It is never
// closed. With several goroutines receiving, each value goes to one of them.
func (s *Subscription) Wake() <-chan struct{} { return s.wake }

// Err returns nil while the subscription lives. Afterwards it returns an error
// that matches ErrClosed, the server's refusal (a redis.Error, for instance
// after the right to the channel was revoked), or redis.ErrClosed when the
// client that the Hub was given has been closed. Wake fires once when it
// changes, and it does not change again.
func (s *Subscription) Err() error {
	mu := &s.ch.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	return s.err
}

// Confirmed reports whether the server has the channel subscribed as far as
// is known: false while the connection is down or being replaced, and after
// the end. A waiter that sees false may decide to poll; Wake fires when the
// channel is confirmed again.
func (s *Subscription) Confirmed() bool {
	mu := &s.ch.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	return s.err == nil && s.ch.state == confirmed
}

// Close ends the subscription and never waits. A goroutine that sleeps on Wake
// is woken once. Closing again, or after the Hub was closed, does nothing.
func (s *Subscription) Close() {
	mu := &s.ch.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	if s.index >= 0 {
		s.ch.conn.leave(s)
		s.end(ErrClosed)
	}
}

// await returns when the channel is confirmed, refused, or ctx has ended. In
// the last two cases the subscription is gone. Until it returns it is the only
// receiver of wake, and confirm and end both fire wake after they changed what
// settled looks at: no change is slept through.
func (s *Subscription) await(ctx context.Context) error {
	for {
		if ok, err := s.settled(); ok {
			return err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return s.giveUp(ctx)
		}
	}
}

// settled reports whether Subscribe can return, and with what.
func (s *Subscription) settled() (bool, error) {
	mu := &s.ch.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	if s.err != nil {
		return true, s.err
	}
	s.established = s.ch.state == confirmed
	return s.established, nil
}

// giveUp ends a subscription whose ctx ended before the server answered.
func (s *Subscription) giveUp(ctx context.Context) error {
	mu := &s.ch.conn.hub.mu
	mu.Lock()
	defer mu.Unlock()
	if s.err != nil {
		return s.err
	}
	lastErr := s.ch.conn.lastErr
	s.ch.conn.leave(s)
	s.end(ErrClosed)
	return subscribeError(s.ch.name, contextError(ctx, lastErr))
}

// end makes err the subscription's error and lets the sleeper look. The caller
// holds Hub.mu and has taken s out of its channel.
func (s *Subscription) end(err error) {
	s.index = -1
	s.err = err
	s.fire()
}

// fire leaves a value in wake and never blocks. When one is there already its
// receiver has not looked yet, and will see this change as well.
func (s *Subscription) fire() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
