package faultproxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestPassesEverythingOn(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			r := newRig(t)
			c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, Protocol: protocol})
			defer func() { _ = c.Close() }()
			ctx := t.Context()
			large := bytes.Repeat([]byte("0123456789\r\n"), 100_000)
			if err := c.Set(ctx, r.key(), large, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Get(ctx, r.key()).Bytes(); err != nil || !bytes.Equal(got, large) {
				t.Errorf("a large value came back with %d bytes, %v", len(got), err)
			}
			if m, err := c.ConfigGet(ctx, "maxmemory*").Result(); err != nil || m["maxmemory-policy"] == "" { // a map in RESP3
				t.Errorf("CONFIG GET: %v, %v", m, err)
			}
			ps := c.Subscribe(ctx, r.prefix+"a", r.prefix+"b")
			defer func() { _ = ps.Close() }()
			for range 2 {
				if _, err := ps.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Publish(ctx, r.prefix+"b", "hello").Err(); err != nil {
				t.Fatal(err)
			}
			if msg, err := ps.ReceiveMessage(ctx); err != nil || msg.Payload != "hello" {
				t.Errorf("message: %v, %v", msg, err)
			}
		})
	}
}

// TestConcurrentClients counts through the proxy from several goroutines while
// the rules change.
func TestConcurrentClients(t *testing.T) {
	const workers, each = 8, 100
	r := newRig(t)
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := c.Incr(t.Context(), r.key()).Err(); err != nil {
					t.Error(err)
					return
				}
				r.On(faultproxy.Cmd("INCR"), faultproxy.Times(1)).DelayReply(0).Remove()
			}
		})
	}
	wg.Wait()
	if n := r.count(t); n != workers*each {
		t.Errorf("counted %d, want %d", n, workers*each)
	}
}

// TestManyUnanswered pipelines more than the proxy keeps account of.
func TestManyUnanswered(t *testing.T) {
	r := newRig(t)
	held := r.On(faultproxy.Cmd("INCR"), faultproxy.Times(1)).Hold()
	const n = faultproxy.MaxPending + 500
	commands := make([]string, n)
	for i := range commands {
		commands[i] = "INCR " + r.key()
	}
	w := r.dial(t)
	var wg sync.WaitGroup
	wg.Go(func() { w.send(commands...) })
	await(t, held.Fired(), "the first reply")
	r.awaitCount(t, faultproxy.MaxPending)
	held.Release()
	for i := range n {
		w.expect(":" + strconv.Itoa(i+1))
	}
	wg.Wait()
}

// confirmation is what a server says about one channel.
func confirmation(resp3 bool, kind, channel string, left int) []string {
	frame := "*3"
	if resp3 {
		frame = ">3"
	}
	return []string{frame, "$" + strconv.Itoa(len(kind)), kind, "$" + strconv.Itoa(len(channel)), channel, ":" + strconv.Itoa(left)}
}

// TestSubscribeReplies sends what is answered by several frames and checks, by
// errors of the proxy's own in between, that it knows which reply is whose.
func TestSubscribeReplies(t *testing.T) {
	for _, resp3 := range []bool{false, true} {
		t.Run(fmt.Sprint("RESP3 ", resp3), func(t *testing.T) {
			r := newRig(t)
			mark := r.On(faultproxy.Arg("mark")).ReplyError("MARK")
			w := r.dial(t)
			pong := []string{"*2", "$4", "pong", "$1", "x"}
			if resp3 {
				pong = []string{"$1", "x"}
				w.send("HELLO 3", "PING mark")
				for line := ""; line != "-MARK"; {
					var err error
					if line, err = w.line(); err != nil {
						t.Fatal(err)
					}
				}
			}
			a, b := r.prefix+"a", r.prefix+"b"
			w.send("SUBSCRIBE "+a+" "+b, "PING mark", "PING x", "PING mark")
			w.expect(confirmation(resp3, "subscribe", a, 1)...)
			w.expect(confirmation(resp3, "subscribe", b, 2)...)
			w.expect("-MARK")
			w.expect(pong...)
			w.expect("-MARK")
			r.direct.Publish(t.Context(), a, "m")
			w.expect(confirmation(resp3, "message", a, 0)[:5]...)
			w.expect("$1", "m")
			w.send("UNSUBSCRIBE " + a)
			w.expect(confirmation(resp3, "unsubscribe", a, 1)...)
			w.send("PING mark", "UNSUBSCRIBE", "SUBSCRIBE "+a, "PING x", "PING mark")
			w.expect("-MARK")
			w.expect(confirmation(resp3, "unsubscribe", b, 0)...)
			w.expect(confirmation(resp3, "subscribe", a, 1)...)
			w.expect(pong...)
			w.expect("-MARK")
			if want := 4; mark.Hits() < want {
				t.Errorf("%d marks, want at least %d", mark.Hits(), want)
			}
		})
	}
}

// TestUnsubscribeFromAll gets several replies to a request without arguments.
func TestUnsubscribeFromAll(t *testing.T) {
	r := newRig(t)
	r.On(faultproxy.Arg("mark")).ReplyError("MARK")
	w := r.dial(t)
	w.send("SUBSCRIBE " + r.prefix + "a " + r.prefix + "b " + r.prefix + "c")
	for range 3 * 6 {
		if _, err := w.line(); err != nil {
			t.Fatal(err)
		}
	}
	w.send("UNSUBSCRIBE", "PING", "PING mark")
	for i := range 3 {
		w.expect("*3", "$11", "unsubscribe")
		for range 2 {
			if _, err := w.line(); err != nil {
				t.Fatal(err)
			}
		}
		w.expect(":" + strconv.Itoa(2-i))
	}
	w.expect("+PONG", "-MARK")
	w.send("SUBSCRIBE "+r.prefix, "UNSUBSCRIBE")
	w.expect(confirmation(false, "subscribe", r.prefix, 1)...)
	w.expect(confirmation(false, "unsubscribe", r.prefix, 0)...)
	w.send("PING mark") // nothing from the server tells that UNSUBSCRIBE has been answered
	w.expect("-MARK")
}

// TestRuleActsOnceOnASubscribe gets two confirmations of one request.
func TestRuleActsOnceOnASubscribe(t *testing.T) {
	r := newRig(t)
	rule := r.On(faultproxy.Cmd("SUBSCRIBE")).DelayReply(0)
	w := r.dial(t)
	w.send("SUBSCRIBE " + r.prefix + "a " + r.prefix + "b")
	w.expect(confirmation(false, "subscribe", r.prefix+"a", 1)...)
	w.expect(confirmation(false, "subscribe", r.prefix+"b", 2)...)
	if rule.Hits() != 1 {
		t.Errorf("the rule acted %d times on one request", rule.Hits())
	}
}

// TestSwallowedSubscribe loses the confirmation; the server has subscribed.
func TestSwallowedSubscribe(t *testing.T) {
	r := newRig(t)
	rule := r.On(faultproxy.Cmd("SUBSCRIBE")).SwallowReply()
	w := r.dial(t)
	w.send("SUBSCRIBE " + r.prefix + "a")
	await(t, rule.Fired(), "the confirmation")
	if n := r.direct.Publish(t.Context(), r.prefix+"a", "m").Val(); n != 1 {
		t.Errorf("published to %d, want 1", n)
	}
	w.expectSilence()
}

// TestRefusedSubscribe gets one error for two channels.
func TestRefusedSubscribe(t *testing.T) {
	s := redistest.New(t, redistest.Config{Conf: "user default on nopass ~* +@all resetchannels\n"})
	r := rig{Proxy: faultproxy.New(t, s.Addr())}
	r.On(faultproxy.Arg("mark")).ReplyError("MARK")
	w := r.dial(t)
	w.send("SUBSCRIBE a b", "PING mark", "PING", "PING mark")
	if line, err := w.line(); err != nil || !strings.HasPrefix(line, "-NOPERM") {
		t.Fatalf("arrived: %q, %v; want NOPERM", line, err)
	}
	w.expect("-MARK", "+PONG", "-MARK")
}

func TestCloseFreesWhatIsHeld(t *testing.T) {
	r := newRig(t)
	request := r.On(faultproxy.Cmd("PING")).HoldRequest()
	reply := r.On(faultproxy.Cmd("ECHO")).Hold()
	a, b := r.dial(t), r.dial(t)
	a.send("PING")
	b.send("ECHO x")
	await(t, request.Fired(), "the request to be held")
	await(t, reply.Fired(), "the reply to be held")
	r.Close()
	r.Close()
	for _, w := range []wire{a, b} {
		if line, err := w.line(); err == nil {
			t.Errorf("arrived after Close: %q", line)
		}
	}
	if n := r.Commands().Count(); n != 0 {
		t.Errorf("%d connections after Close", n)
	}
}

// TestBrokenProtocol sends what is not RESP; the server says what it thinks of
// it or the connection ends, and the proxy goes on.
func TestBrokenProtocol(t *testing.T) {
	r := newRig(t)
	w := r.dial(t)
	if _, err := w.Write([]byte("*1\r\n$x\r\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := w.line(); err == nil {
		t.Errorf("arrived: %q; want an end", line)
	}
	other := r.dial(t)
	other.send("PING")
	other.expect("+PONG")
	if err := errors.Join(w.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}
