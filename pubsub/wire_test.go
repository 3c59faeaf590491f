package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

// wire is a server inside a bubble, and the log of what a hub does to it.
type wire struct {
	*miniredis.Miniredis
	start time.Time

	mu     sync.Mutex
	events []string // "3s ping", by the bubble's clock.
	dials  []time.Time
	last   net.Conn // The newest connection.
	mute   bool     // Nothing that the server sends arrives.
	dial   func(ctx context.Context) error
}

func newWire(t *testing.T) (*wire, *redis.Client) {
	t.Helper()
	w := &wire{Miniredis: miniredis.NewMiniRedis(), start: time.Now(), dial: dialOK}
	w.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, MaxRetries: -1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			w.log("dial")
			w.noteDial()
			if err := w.dialHook()(ctx); err != nil {
				return nil, err
			}
			return w.connect()
		},
	})
	t.Cleanup(func() {
		_ = rdb.Close()
		w.Close()
	})
	return w, rdb
}

func (w *wire) connect() (net.Conn, error) {
	c, err := w.Dial()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = c
	return &wireConn{Conn: c, w: w}, err
}

// cut breaks the newest connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.last.Close()
}

func (w *wire) noteDial() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, time.Now())
}

// takeDials returns the times of the attempts to connect so far and forgets them.
func (w *wire) takeDials() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials := w.dials
	w.dials = nil
	return dials
}

func (w *wire) log(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprint(time.Since(w.start), " ", what))
}

// take returns the events so far and forgets them.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func dialOK(context.Context) error { return nil }

var errRefused = errors.New("refused")

func dialRefused(context.Context) error { return errRefused }

// onDial makes every later attempt to connect call f first.
func (w *wire) onDial(f func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dial = f
}

func (w *wire) dialHook() func(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dial
}

func (w *wire) setMute(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = mute
}

func (w *wire) muted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mute
}

// wireConn logs the commands of a subscription connection and can lose what
// the server sends.
type wireConn struct {
	net.Conn
	w    *wire
	once sync.Once
}

func (c *wireConn) Write(p []byte) (int, error) {
	fields := strings.Fields(strings.ToLower(string(p)))
	for i, f := range fields {
		switch f {
		case "ping":
			c.w.log(f)
		case "subscribe", "unsubscribe":
			c.w.log(f + " " + fields[i+2])
		}
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.w.muted() {
			return n, err
		}
	}
}

func (c *wireConn) Close() error {
	c.once.Do(func() { c.w.log("close") })
	return c.Conn.Close()
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events\n got %q\nwant %q", got, want)
	}
}

func bubbleHub(t *testing.T, rdb redis.UniversalClient) *pubsub.Hub {
	t.Helper()
	h, err := pubsub.New(rdb, pubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		start := time.Now()
		_ = h.Close()
		if d := time.Since(start); d > 250*time.Millisecond {
			t.Errorf("Hub.Close took %v", d)
		}
	})
	return h
}

// pass lets d of the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
