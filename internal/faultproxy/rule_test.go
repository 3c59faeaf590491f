package faultproxy_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
)

func TestSwallowReply(t *testing.T) {
	r := newRig(t)
	rule := r.On(faultproxy.Cmd("incr"), faultproxy.Nth(2)).SwallowReply()
	w := r.dial(t)
	w.send("INCR " + r.key())
	w.expect(":1")
	w.send("INCR "+r.key(), "INCR "+r.key())
	await(t, rule.Fired(), "the reply to swallow")
	r.awaitCount(t, 3) // what follows is executed too
	w.expectSilence()
	other := r.dial(t)
	other.send("INCR " + r.key())
	other.expect(":4")
	if rule.Hits() != 1 {
		t.Errorf("the rule acted %d times, want 1", rule.Hits())
	}
}

func TestDropRequest(t *testing.T) {
	r := newRig(t)
	rule := r.On(faultproxy.Cmd("INCR"), faultproxy.Nth(2)).DropRequest()
	w := r.dial(t)
	w.send("INCR "+r.key(), "INCR "+r.key(), "INCR "+r.key())
	w.expect(":1") // the reply to what went before is not lost
	await(t, rule.Fired(), "the request to drop")
	w.expectSilence()
	if n := r.count(t); n != 1 {
		t.Errorf("%d requests were executed, want 1", n)
	}
	other := r.dial(t)
	other.send("INCR " + r.key())
	other.expect(":2")
}

func TestReset(t *testing.T) {
	for name, c := range map[string]struct {
		set      func(*faultproxy.Match) *faultproxy.Rule
		executed int
	}{
		"before": {(*faultproxy.Match).Reset, 0},
		"after":  {(*faultproxy.Match).ResetAfterExecution, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			rule := c.set(r.On(faultproxy.Cmd("INCR")))
			w := r.dial(t)
			w.send("INCR " + r.key())
			if line, err := w.line(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("arrived: %q, %v; want a reset", line, err)
			}
			if n := r.count(t); n != c.executed || rule.Hits() != 1 {
				t.Errorf("executed %d times, want %d; the rule acted %d times", n, c.executed, rule.Hits())
			}
		})
	}
}

func TestReplyErrorKeepsTheOrder(t *testing.T) {
	r := newRig(t)
	r.On(faultproxy.Arg("no")).ReplyError("READONLY You can't write")
	w := r.dial(t)
	w.send("INCR "+r.key(), "SET x no", "SET x no", "INCR "+r.key())
	w.expect(":1", "-READONLY You can't write", "-READONLY You can't write", ":2")
	w.send("SET x no")
	w.expect("-READONLY You can't write")

	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	if err := c.Set(t.Context(), "x", "no", 0).Err(); !redis.IsReadOnlyError(err) {
		t.Errorf("go-redis took the error for %v", err)
	}
}

func TestDelays(t *testing.T) {
	const d = 60 * time.Millisecond
	for name, set := range map[string]func(*faultproxy.Match, time.Duration) *faultproxy.Rule{
		"request": (*faultproxy.Match).DelayRequest, "reply": (*faultproxy.Match).DelayReply,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			rule := set(r.On(faultproxy.Cmd("INCR"), faultproxy.Times(1)), d)
			w := r.dial(t)
			start := time.Now()
			w.send("INCR "+r.key(), "PING")
			await(t, rule.Fired(), "the delay to begin")
			w.expect(":1", "+PONG") // nothing overtakes
			if spent := time.Since(start); spent < d {
				t.Errorf("delayed by %v, want at least %v", spent, d)
			}
			w.send("INCR " + r.key())
			w.expect(":2")
			if rule.Hits() != 1 {
				t.Errorf("delayed %d times, want 1", rule.Hits())
			}
		})
	}
}

func TestHold(t *testing.T) {
	r := newRig(t)
	held := r.On(faultproxy.Cmd("INCR")).Hold()
	w := r.dial(t)
	w.send("INCR "+r.key(), "PING")
	await(t, held.Fired(), "the reply to be held")
	if n := r.count(t); n != 1 {
		t.Errorf("executed %d times when the rule had fired, want 1", n)
	}
	w.expectSilence()
	held.Release()
	held.Release()
	w.expect(":1", "+PONG")
	w.send("INCR " + r.key())
	w.expect(":2")
}

// TestHoldRequestAfterClose is the late copy: its client has given up.
func TestHoldRequestAfterClose(t *testing.T) {
	r := newRig(t)
	held := r.On(faultproxy.Cmd("INCR")).HoldRequest()
	w := r.dial(t)
	w.send("INCR "+r.key(), "INCR "+r.key())
	await(t, held.Fired(), "the request to be held")
	_ = w.Close()
	if n := r.count(t); n != 0 {
		t.Errorf("%d held requests were executed", n)
	}
	held.Release()
	r.awaitCount(t, 2)
}

func TestScript(t *testing.T) {
	r := newRig(t)
	script := redis.NewScript("return redis.call('incr', KEYS[1])")
	rule := r.On(faultproxy.Script(strings.ToUpper(script.Hash()))).Count()
	other := r.On(faultproxy.Script(redis.NewScript("return 1").Hash())).Count()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	if err := r.direct.ScriptLoad(t.Context(), "return redis.call('incr', KEYS[1])").Err(); err != nil {
		t.Fatal(err)
	}
	for _, run := range []func() *redis.Cmd{
		func() *redis.Cmd { return script.EvalSha(t.Context(), c, []string{r.key()}) },
		func() *redis.Cmd { return script.Eval(t.Context(), c, []string{r.key()}) },
	} {
		if err := run().Err(); err != nil {
			t.Fatal(err)
		}
	}
	if rule.Hits() != 2 || other.Hits() != 0 {
		t.Errorf("EVALSHA and EVAL: %d hits, want 2; another script: %d, want 0", rule.Hits(), other.Hits())
	}
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	rules := map[string]*faultproxy.Rule{
		"each":  r.On(faultproxy.Any()).Count(),
		"nth":   r.On(faultproxy.Cmd("PING"), faultproxy.Nth(2)).Count(),
		"times": r.On(faultproxy.Cmd("PING", "ECHO"), faultproxy.Times(3)).Count(),
		"from":  r.On(faultproxy.Cmd("PING"), faultproxy.From(2)).Count(),
		"all":   r.On(faultproxy.All(faultproxy.Cmd("ECHO"), faultproxy.Arg("x"))).Count(),
		"sub":   r.On(faultproxy.OnSubscription()).Count(),
		"gone":  r.On(faultproxy.Any()).Count(),
	}
	rules["gone"].Remove()
	w := r.dial(t)
	w.send("PING", "ECHO y", "PING", "ECHO x", "PING")
	w.expect("+PONG", "$1", "y", "+PONG", "$1", "x", "+PONG")
	for name, want := range map[string]int{"each": 5, "nth": 1, "times": 3, "from": 2, "all": 1, "sub": 0, "gone": 0} {
		if got := rules[name].Hits(); got != want || len(rules[name].Fired()) != want {
			t.Errorf("%s: %d hits and %d signals, want %d", name, got, len(rules[name].Fired()), want)
		}
	}
}

// TestRulesAddUp lets two rules act on one request.
func TestRulesAddUp(t *testing.T) {
	r := newRig(t)
	held := r.On(faultproxy.Cmd("INCR")).HoldRequest()
	swallowed := r.On(faultproxy.Cmd("INCR")).SwallowReply()
	w := r.dial(t)
	w.send("INCR " + r.key())
	await(t, held.Fired(), "the request to be held")
	if swallowed.Hits() != 0 || r.count(t) != 0 {
		t.Error("a held request was executed")
	}
	held.Release()
	await(t, swallowed.Fired(), "the reply to be swallowed")
	w.expectSilence()
	if n := r.count(t); n != 1 {
		t.Errorf("executed %d times, want 1", n)
	}
}
