package pubsub

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// closeWait bounds how long Hub.Close waits for its goroutines.
const closeWait = 250 * time.Millisecond

// Hub shares one subscription connection between all its subscriptions. It is
// made by New; its methods are safe for concurrent use. While nothing is
// subscribed it has no connection and no goroutine.
type Hub struct {
	rdb  redis.UniversalClient
	opts Options
	wg   sync.WaitGroup // Every goroutine of the hub.

	// mu guards what follows and all the bookkeeping of connections, channels
	// and subscriptions. Nobody does I/O, logs or blocks while holding it.
	mu     sync.Mutex
	conns  map[route]*conn
	closed bool
}

// A route names the connection that serves a channel. With plain channels
// every node of a deployment delivers every message, so there is one route;
// sharded channels need one for each node.
type route string

// New returns a Hub that subscribes through rdb, and does no I/O. It returns
// an error that names the field when an option cannot be used, and an error
// when rdb is nil or a *redis.Ring, which has no single place to publish to.
// The Hub does not close rdb; close the Hub first.
func New(rdb redis.UniversalClient, o Options) (*Hub, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("pubsub: the Redis client is nil; pass one made by redis.NewClient, NewFailoverClient or NewClusterClient")
	}
	if _, ok := rdb.(*redis.Ring); ok {
		return nil, errors.New("pubsub: *redis.Ring is not supported; pass a client of one server, of a Sentinel group or of a cluster")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Hub{rdb: rdb, opts: o, conns: make(map[route]*conn)}, nil
}

// Subscribe returns after the server has confirmed channel, at once when it is
// confirmed already. See the package comment for what that guarantees. Any
// number of subscriptions may share a channel; each has to be closed.
//
// On an error there is no subscription, nothing is left behind, and other
// subscriptions are unharmed. The error matches
//   - ctx.Err() and context.Cause(ctx) when ctx ended first, and also the last
//     connection error if the server could not be reached: until then
//     Subscribe keeps trying,
//   - the server's answer (a redis.Error) when it refuses the channel or the login,
//   - redis.ErrClosed when the client is closed, and ErrClosed when the Hub is.
func (h *Hub) Subscribe(ctx context.Context, channel string) (*Subscription, error) {
	if channel == "" {
		return nil, errors.New("pubsub: the channel's name is empty")
	}
	if ctx.Err() != nil {
		return nil, subscribeError(channel, contextError(ctx, nil))
	}
	s, err := h.join(channel)
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends every subscription: Err returns ErrClosed and Wake fires once. It
// closes the connection and waits for the goroutines of the Hub, but at most a
// quarter of a second: a goroutine inside a call that go-redis does not return
// from ends when that call does, which the client's timeouts bound. Close
// always returns nil; closing again is harmless.
func (h *Hub) Close() error {
	h.shut()
	ended := make(chan struct{})
	go func() {
		h.wg.Wait() // Nothing is added to an idle group any more: closed is set.
		close(ended)
	}()
	timeout := time.NewTimer(closeWait)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	}
	return nil
}

// shut ends all subscriptions and tells the managers of the connections to stop.
func (h *Hub) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.conns {
		for _, ch := range c.channels {
			c.endSubs(ch, ErrClosed)
		}
		c.poke()
	}
}

// join adds a subscription to channel, and starts the connection if need be.
func (h *Hub) join(channel string) (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, subscribeError(channel, ErrClosed)
	}
	c := h.connFor(h.routeOf(channel))
	s := c.join(channel)
	if !c.running {
		c.running = true
		h.wg.Go(c.manage)
	}
	return s, nil
}

// routeOf names the connection that has to carry channel.
func (h *Hub) routeOf(string) route { return "" }

// connFor returns the connection of r, which stays the same when it is idle in
// between: it knows what its calls that did not return still occupy.
func (h *Hub) connFor(r route) *conn {
	c := h.conns[r]
	if c == nil {
		c = newConn(h)
		h.conns[r] = c
	}
	return c
}
