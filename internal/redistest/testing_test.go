package redistest_test

import (
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestSharedIsOneServer(t *testing.T) {
	a, b := redistest.Shared(t), redistest.Shared(t)
	if a != b || !answers(t.Context(), a.Addr()) {
		t.Errorf("Shared gave %s and %s", a.Addr(), b.Addr())
	}
}

func TestShortSkips(t *testing.T) {
	f := flag.Lookup("test.short")
	before := f.Value.String()
	if err := f.Value.Set("true"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Value.Set(before) }()
	for name, get := range map[string]func(redistest.TB){
		"New":    func(tb redistest.TB) { redistest.New(tb, redistest.Config{}) },
		"Shared": func(tb redistest.TB) { redistest.Shared(tb) },
	} {
		tb := &fakeTB{name: name}
		tb.run(func() { get(tb) })
		if !tb.skipped || tb.Failed() || !strings.Contains(tb.text(), "-short") {
			t.Errorf("%s under -short: skipped %v, failed %v, %q", name, tb.skipped, tb.Failed(), tb.text())
		}
	}
}

func TestNewShowsTheLogOfAFailedTest(t *testing.T) {
	needsServer(t)
	tb := &fakeTB{name: t.Name()}
	tb.run(func() {
		redistest.New(tb, redistest.Config{})
		tb.Errorf("failed on purpose")
	})
	if !strings.Contains(tb.text(), "Ready to accept connections") {
		t.Errorf("a failed test shows %q", tb.text())
	}
}

func TestClientIsClosedWithTheTest(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	var c *redis.Client
	tb := &fakeTB{name: t.Name()}
	tb.run(func() {
		c = s.Client(tb, func(o *redis.Options) { o.ClientName = "hooked" })
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		if name := c.ClientGetName(t.Context()).Val(); name != "hooked" {
			t.Errorf("the hook was not used: name %q", name)
		}
	})
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("the client is open after its test")
	}
}

func TestPrefix(t *testing.T) {
	tb := &fakeTB{name: "Test/a{b}*c d"}
	a, b := redistest.Prefix(tb), redistest.Prefix(tb)
	if a == b || !strings.HasPrefix(a, "Test/a_b__c_d:") || !strings.HasSuffix(a, ":") {
		t.Errorf("prefixes %q and %q", a, b)
	}
}

func TestEventually(t *testing.T) {
	n := 0
	redistest.Eventually(t, 10*time.Second, func() bool { n++; return n == 3 }, "never")
	if n != 3 {
		t.Errorf("the condition was asked %d times, want 3", n)
	}
	tb := &fakeTB{name: t.Name()}
	tb.run(func() {
		redistest.Eventually(tb, time.Millisecond, func() bool { return false }, "waiting for %s", "nothing")
	})
	if !tb.Failed() || !strings.Contains(tb.text(), "waiting for nothing") {
		t.Errorf("a condition that stays false: failed %v, %q", tb.Failed(), tb.text())
	}
}

func TestCheckNoKeys(t *testing.T) {
	s := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	c := s.Client(t)
	s.CheckNoKeys(t, prefix)
	if err := c.HSet(t.Context(), prefix+"left", "f", 1).Err(); err != nil {
		t.Fatal(err)
	}
	tb := &fakeTB{name: t.Name()}
	s.CheckNoKeys(tb, prefix)
	if !tb.Failed() || !strings.Contains(tb.text(), prefix+"left") || !strings.Contains(tb.text(), "hash") {
		t.Errorf("a key that is left: failed %v, %q", tb.Failed(), tb.text())
	}
	s.CheckNoKeys(t, prefix+"lef?") // the prefix is no pattern
	if err := c.PExpire(t.Context(), prefix+"left", 100*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	s.CheckNoKeys(t, prefix) // it waits for the key to expire
}

func TestCheckNoChannels(t *testing.T) {
	s := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	c := s.Client(t)
	s.CheckNoChannels(t, prefix+"*")
	plain, sharded := c.Subscribe(t.Context(), prefix+"plain"), c.SSubscribe(t.Context(), prefix+"sharded")
	for _, ps := range []*redis.PubSub{plain, sharded} {
		if _, err := ps.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tb := &fakeTB{name: t.Name()}
	s.CheckNoChannels(tb, prefix+"*")
	if !tb.Failed() || !strings.Contains(tb.text(), prefix+"plain") || !strings.Contains(tb.text(), prefix+"sharded") {
		t.Errorf("channels that are left: failed %v, %q", tb.Failed(), tb.text())
	}
	_ = plain.Close()
	_ = sharded.Close()
	s.CheckNoChannels(t, prefix+"*")
}

func TestCheckReportsADeadServer(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	tb := &fakeTB{name: t.Name()}
	s.CheckNoKeys(tb, "x")
	if !tb.Failed() {
		t.Error("no keys were found on a dead server, and that passed")
	}
}

func TestCommands(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	c := s.Client(t)
	if err := c.Ping(t.Context()).Err(); err != nil { // the handshake comes before what is counted
		t.Fatal(err)
	}
	got := s.Commands(t, func() {
		for range 3 {
			c.Set(t.Context(), "k", 1, 0)
		}
		c.Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"k"})
	})
	want := map[string]int64{"set": 3, "eval": 1, "get": 1}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got := s.Commands(t, func() {}); len(got) != 0 {
		t.Errorf("nothing was done and %v counted", got)
	}
}

func TestMonitor(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	c := s.Client(t)
	m := s.Monitor(t)
	value := "a \"b\" \\ \r\n\x00\xff"
	if err := c.Set(t.Context(), "k", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if calls := m.Calls(t); !slices.ContainsFunc(calls, func(c redistest.Call) bool { return slices.Equal(c.Args, []string{"set", "k", value}) }) {
		t.Errorf("SET is not among %v", calls)
	}
	for i := range 100 { // what has been answered is there, however late the report
		if err := c.Do(t.Context(), "echo", i).Err(); err != nil {
			t.Fatal(err)
		}
		calls := m.Calls(t)
		if last := calls[len(calls)-1]; last.Name() != "ECHO" || last.Args[1] != strconv.Itoa(i) {
			t.Fatalf("the last call is %v, want ECHO %d", last, i)
		}
	}
	if err := c.Eval(t.Context(), "return redis.call('del', KEYS[1])", []string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	calls := m.Stop(t)
	last := calls[len(calls)-1]
	if last.Name() != "DEL" || !last.FromScript() {
		t.Errorf("the last call is %v, want the script's DEL", last)
	}
	if err := c.Set(t.Context(), "after", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if again := m.Stop(t); len(again) != len(calls) {
		t.Errorf("%d calls after Stop, %d before", len(again), len(calls))
	}
}

func TestConnections(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	if got := s.Connections(t); len(got) != 0 {
		t.Errorf("nobody is connected, and there are %v", got)
	}
	c := s.Client(t, func(o *redis.Options) { o.ClientName = "me" })
	ps := c.Subscribe(t.Context(), "a", "b")
	defer func() { _ = ps.Close() }()
	for range 2 {
		if _, err := ps.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Connections(t)
	if len(got) != 1 || got[0].Name != "me" || got[0].Subscriptions != 2 || got[0].LastCommand != "subscribe" {
		t.Errorf("connections: %+v, want the subscription's", got)
	}
}
