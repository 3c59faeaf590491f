package rlock

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/pubsub"
	"github.com/latchkey-go/latchkey/watchdog"
)

// Client makes locks. One per process is enough: it carries any number of locks
// on the connections of one go-redis client, plus one for subscriptions while
// somebody waits. Its methods are safe for concurrent use. The zero value is of
// no use; New makes one.
//
// Half a second after the last hold and the last waiter, a Client has no
// goroutine, no timer and no connection of its own.
type Client struct {
	id      string
	rdb     redis.UniversalClient
	opts    Options
	log     *slog.Logger
	cluster bool
	publish string // the command that wakes waiters

	clock *serverClock
	dog   *watchdog.Watchdog[*owner]
	hub   *pubsub.Hub
	last  atomic.Int64 // the last owner number given out

	refusal sync.Once // of the unlock channel, reported once
	calls   tally     // commands under way, and releases still to be sent
	closing chan struct{}

	mu     sync.Mutex
	state  clientState
	names  map[string]*entry
	held   int           // entries whose holder is ours
	waited int           // entries with a queue
	idle   chan struct{} // closed when held is 0 during Shutdown
}

// clientState says what a client still does.
type clientState int

const (
	open     clientState = iota
	shutting             // open holds go on, nothing new begins
	closed               // releases are still sent
)

// New returns a client whose locks live on the servers behind rdb. It does no
// I/O. It returns an error that names the field for options out of bounds, for
// a nil rdb, and for a *redis.Ring, which cannot carry locks.
//
// The caller keeps rdb and closes it after the Client.
func New(rdb redis.UniversalClient, opts Options) (*Client, error) {
	if err := checkServer(rdb); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	c := &Client{
		id: uuid.NewString(), rdb: rdb, opts: opts, log: opts.Logger,
		publish: "PUBLISH", clock: newServerClock(),
		closing: make(chan struct{}), names: make(map[string]*entry),
	}
	_, c.cluster = rdb.(*redis.ClusterClient)
	var err error
	c.dog, err = watchdog.New(c.renewBatch, watchdog.Options[*owner]{
		RenewalsPerLease: float64(opts.Lease) / float64(opts.RenewEvery),
		OnLost:           func(o *owner, why error) { o.watchdogLost(why) },
	})
	if err != nil {
		return nil, fmt.Errorf("rlock: %w", err)
	}
	c.hub, err = pubsub.New(rdb, pubsub.Options{Sharding: pubsub.Off, Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("rlock: %w", err)
	}
	return c, nil
}

// ID returns the client's half of every owner id: a random UUID, fresh for each
// Client, so that a restarted process is never taken for the one before.
func (c *Client) ID() string { return c.id }

// NewRLock returns the re-entrant lock of this name. The name, with
// Options.KeyPrefix before it, is the Redis key: it must not be used for other
// data. NewRLock does no I/O and never fails; a name that Redis cannot carry, or
// that is empty or longer than 4096 bytes, is refused by the first use. Locks of
// one name are one lock, whichever RLock they are reached by.
func (c *Client) NewRLock(name string) *RLock {
	return &RLock{c: c, name: name, key: c.opts.KeyPrefix + name}
}

// newOwnerID returns an owner id that was never used before.
func (c *Client) newOwnerID() string {
	return c.id + ":" + strconv.FormatInt(c.last.Add(1), 10)
}

// group returns what the renewals of a key may share a script with: all keys of
// one server, in a cluster those of one slot.
func (c *Client) group(key string) string {
	if !c.cluster {
		return ""
	}
	return strconv.Itoa(wire.Slot(key))
}

// Shutdown ends the client in order: new locks are refused and those who wait
// get ErrClosed; holds that are open go on, are renewed, and may re-enter.
// When the last one has been unlocked or lost, the client is closed and
// Shutdown returns nil. If ctx ends first, Shutdown returns its error and the
// client goes on serving its open holds: call Shutdown again, or Close.
// Shutdown of a closed client returns nil.
//
// A service ends with: http.Server.Shutdown and this at the same time, Close if
// ctx ended first, and then rdb.Close.
func (c *Client) Shutdown(ctx context.Context) error {
	idle := c.stopWaiters(shutting)
	select {
	case <-idle: // whatever ctx says
		return c.Close()
	default:
	}
	select {
	case <-idle:
		return c.Close()
	case <-ctx.Done():
		return fmt.Errorf("rlock: Shutdown: locks still held: %d: %w", c.heldNow(), ended(ctx))
	}
}

// Close ends the client at once: it stops renewing, open holds become lost,
// those who wait get ErrClosed, new locks are refused. It waits at most
// Options.UnlockTimeout for commands under way and releases what they are
// granted. Locks that were held stay in Redis until their lease ends or until
// they are unlocked: Unlock works after Close too. Close returns nil; a second
// call does nothing.
func (c *Client) Close() error {
	bound := time.NewTimer(c.opts.UnlockTimeout)
	defer bound.Stop()
	c.stopWaiters(closed)
	for _, o := range c.holders() {
		o.lose(fmt.Errorf("%w: %w", ErrLost, ErrClosed))
	}
	_ = c.dog.Close() // it has no way to fail
	c.calls.add()
	go func() { // the server may hang: within the same bound as the rest
		defer c.calls.done()
		_ = c.hub.Close() // the connection it closes is of no more use
	}()
	select {
	case <-c.calls.none():
	case <-bound.C:
		c.log.Warn("closed with commands still unanswered")
		c.dropGhosts()
	}
	return nil
}

// stopWaiters moves the client on to state and returns a channel that is closed
// when no lock is held.
func (c *Client) stopWaiters(next clientState) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == open {
		close(c.closing)
		for _, e := range c.names {
			e.interruptHead() // it may be blocked in subscribing
		}
	}
	c.state = max(c.state, next)
	if c.idle == nil {
		c.idle = make(chan struct{})
		if c.held == 0 {
			close(c.idle)
		}
	}
	return c.idle
}

func (c *Client) heldNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// holders returns the owners that hold a lock now.
func (c *Client) holders() []*owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*owner
	for _, e := range c.names {
		if e.holder != nil {
			all = append(all, e.holder)
		}
	}
	return all
}
