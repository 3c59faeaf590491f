package faultproxy_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestBlackhole(t *testing.T) {
	for name, c := range map[string]struct {
		dirs     []faultproxy.Direction
		executed int
	}{
		"both":       {nil, 0},
		"upstream":   {[]faultproxy.Direction{faultproxy.Upstream}, 0},
		"downstream": {[]faultproxy.Direction{faultproxy.Downstream}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			idle, busy := r.dial(t), r.dial(t)
			for _, w := range []wire{idle, busy} {
				w.send("PING")
				w.expect("+PONG")
			}
			r.Blackhole(c.dirs...)
			later := r.dial(t) // it is accepted
			for _, w := range []wire{busy, later} {
				w.send("INCR " + r.key())
				w.expectSilence()
			}
			if c.executed > 0 {
				r.awaitCount(t, 2*c.executed)
			} else if n := r.count(t); n != 0 {
				t.Errorf("%d requests got through", n)
			}
			r.Heal()
			fresh := r.dial(t)
			for _, w := range []wire{idle, fresh} {
				w.send("PING")
				w.expect("+PONG")
			}
			busy.send("PING") // behind a gap
			busy.expectSilence()
		})
	}
}

func TestBlackholeSwallowsWhatIsHeld(t *testing.T) {
	r := newRig(t)
	request := r.On(faultproxy.Cmd("INCR"), faultproxy.Nth(1)).HoldRequest()
	reply := r.On(faultproxy.Cmd("INCR"), faultproxy.Nth(2)).Hold()
	a, b := r.dial(t), r.dial(t)
	a.send("INCR " + r.key())
	await(t, request.Fired(), "the request to be held")
	b.send("INCR " + r.key())
	await(t, reply.Fired(), "the reply to be held")
	r.Blackhole()
	request.Release()
	reply.Release()
	a.expectSilence()
	b.expectSilence()
	if n := r.count(t); n != 1 {
		t.Errorf("executed %d times, want 1: only the second request", n)
	}
}

// TestBlackholeHidesTheEnd checks that neither side hears that the other one
// has gone, and that the server does after Heal.
func TestBlackholeHidesTheEnd(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	r := rig{Proxy: faultproxy.New(t, s.Addr())}
	left, stays := r.dial(t), r.dial(t)
	for _, w := range []wire{left, stays} {
		w.send("PING")
		w.expect("+PONG")
	}
	r.Blackhole()
	_ = left.Close()
	stays.expectSilence()
	if n := len(s.Connections(t)); n != 2 {
		t.Errorf("the server has %d connections in the black hole, want 2", n)
	}
	r.Heal()
	redistest.Eventually(t, enough, func() bool { return len(s.Connections(t)) == 1 }, "the server to hear of the close")
	r.Blackhole(faultproxy.Downstream)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	stays.expectSilence()
	r.dial(t).expectSilence() // the server is down and nobody can tell
	if r.Commands().Count() != 2 {
		t.Errorf("the proxy has %d connections, want 2", r.Commands().Count())
	}
	r.Heal()
	r.KillConnections()
	if line, err := stays.line(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after KillConnections: %q, %v; want a reset", line, err)
	}
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Addr())
	if err == nil { // the reset may be as quick as the dial
		defer func() { _ = nc.Close() }()
		_, err = nc.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("in front of a dead server: %v, want a reset", err)
	}
}

func TestGroupsAreApart(t *testing.T) {
	r := newRig(t)
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, PoolSize: 1})
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ps := c.Subscribe(t.Context(), r.prefix+"ch")
	defer func() { _ = ps.Close() }()
	if _, err := ps.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cmds, subs := r.Commands().Count(), r.Subscriptions().Count(); cmds != 1 || subs != 1 {
		t.Fatalf("%d command and %d subscription connections, want 1 and 1", cmds, subs)
	}
	r.Subscriptions().Blackhole()
	if n := r.direct.Publish(t.Context(), r.prefix+"ch", "lost").Val(); n != 1 {
		t.Errorf("published to %d, want 1", n)
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a command beside the black hole: %v", err)
	}
	if msg, err := ps.ReceiveTimeout(t.Context(), silence); err == nil {
		t.Errorf("received %v out of the black hole", msg)
	}
	r.Subscriptions().Heal()
	if n := r.Subscriptions().Kill(); n != 1 {
		t.Errorf("killed %d, want 1", n)
	}
	for { // go-redis subscribes again
		msg, err := ps.ReceiveTimeout(t.Context(), enough)
		if _, ok := msg.(*redis.Subscription); ok && err == nil {
			break
		}
		if t.Context().Err() != nil || r.Subscriptions().Count() > 1 {
			t.Fatalf("no subscription after the reset: %v, %v", msg, err)
		}
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a command after Kill of the subscriptions: %v", err)
	}
}

func TestCommandsBlackholeSparesSubscriptions(t *testing.T) {
	r := newRig(t)
	sub, cmd := r.dial(t), r.dial(t)
	sub.send("SUBSCRIBE " + r.prefix)
	for range 6 {
		if _, err := sub.line(); err != nil {
			t.Fatal(err)
		}
	}
	r.Commands().Blackhole()
	cmd.send("PING")
	cmd.expectSilence()
	sub.send("PING")
	sub.expect("*2", "$4", "pong", "$0", "")
}

// TestKillOfAClientThatDoesNotRead ends a connection whose buffers are full: the
// proxy is stuck in a write to the client.
func TestKillOfAClientThatDoesNotRead(t *testing.T) {
	r := newRig(t)
	if err := r.direct.Set(t.Context(), r.key(), make([]byte, 8<<20), time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	rule := r.On(faultproxy.Cmd("GET"), faultproxy.Nth(3)).Count()
	w := r.dial(t)
	w.send("GET "+r.key(), "GET "+r.key(), "GET "+r.key())
	await(t, rule.Fired(), "the requests to be sent")
	if n := r.KillConnections(); n != 1 {
		t.Errorf("killed %d connections, want 1", n)
	}
	redistest.Eventually(t, enough, func() bool { return r.Commands().Count() == 0 }, "the connection to end")
}
