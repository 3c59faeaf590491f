package redistest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// answers tells whether somebody on addr answers PING.
func answers(ctx context.Context, addr string) bool {
	return ping(ctx, addr, time.Second) == nil
}

func ping(ctx context.Context, addr string, within time.Duration) error {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: within, DisableIdentity: true})
	defer func() { _ = c.Close() }()
	return c.Ping(ctx).Err()
}

func TestStartAndStop(t *testing.T) {
	needsServer(t)
	ctx, cancel := startBound(t)
	defer cancel()
	s, err := redistest.Start(ctx, redistest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(ctx) }()
	if !answers(ctx, s.Addr()) || !s.Running() || s.PID() == 0 || s.External() {
		t.Fatalf("after Start: answers %v, running %v, pid %d, external %v", answers(ctx, s.Addr()), s.Running(), s.PID(), s.External())
	}
	for range 2 {
		if err := s.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if answers(ctx, s.Addr()) || s.Running() {
		t.Error("the server runs after Stop")
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory after Stop: %v, want that it is gone", err)
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("the log after Stop is %q", s.Log())
	}
	if err := errors.Join(s.Kill()); !errors.Is(err, redistest.ErrStopped) {
		t.Errorf("Kill after Stop: %v, want ErrStopped", err)
	}
	if err := s.Restart(ctx); !errors.Is(err, redistest.ErrStopped) {
		t.Errorf("Restart after Stop: %v, want ErrStopped", err)
	}
}

func TestDefaults(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	c := s.Client(t)
	for name, want := range map[string]string{"save": "", "appendonly": "no", "bind": "127.0.0.1"} {
		got, err := c.ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != want {
			t.Errorf("CONFIG GET %s: %q, %v; want %q", name, got[name], err, want)
		}
	}
	if err := c.Do(t.Context(), "debug", "sleep", "0").Err(); err != nil {
		t.Errorf("DEBUG is not enabled: %v", err)
	}
}

func TestConfig(t *testing.T) {
	s := redistest.New(t, redistest.Config{
		Args: []string{"--maxclients", "77"}, Conf: "rename-command FLUSHALL GONE\n", Password: "secret",
	})
	c := s.Client(t)
	if got, err := c.ConfigGet(t.Context(), "maxclients").Result(); err != nil || got["maxclients"] != "77" {
		t.Errorf("maxclients: %v, %v; want the one of Args", got, err)
	}
	if err := c.FlushAll(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a renamed command gave %v", err)
	}
	if err := ping(t.Context(), s.Addr(), time.Second); !redis.IsAuthError(err) {
		t.Errorf("without the password: %v, want NOAUTH", err)
	}
}

func TestClusterNode(t *testing.T) {
	s := redistest.New(t, redistest.Config{Cluster: true})
	info, err := s.Client(t).ClusterInfo(t.Context()).Result()
	if err != nil || !strings.Contains(info, "cluster_known_nodes:1") {
		t.Errorf("CLUSTER INFO: %v, %q", err, info)
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redistest.Start(t.Context(), redistest.Config{})
	if !errors.Is(err, redistest.ErrNoServer) {
		t.Fatalf("on an empty PATH: %v, want ErrNoServer", err)
	}
	for _, line := range []string{"apt-get install -y redis-server", "brew install redis", "docker run", redistest.EnvAddr} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("the error does not say %q: %v", line, err)
		}
	}
}

func TestNewWithoutServerFails(t *testing.T) {
	needsServer(t)
	t.Setenv("PATH", t.TempDir())
	tb := &fakeTB{name: t.Name()}
	tb.run(func() { redistest.New(tb, redistest.Config{}) })
	if !tb.Failed() || !strings.Contains(tb.text(), "apt-get install") {
		t.Errorf("New without a server: failed %v, %q", tb.Failed(), tb.text())
	}
}

func TestBadArgumentReportsTheLog(t *testing.T) {
	needsServer(t)
	_, err := redistest.Start(t.Context(), redistest.Config{Args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("a bad argument gave %v, want the server's own words", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	needsServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	// The version is asked for first, with the same ctx.
	if _, err := redistest.Start(ctx, redistest.Config{}); err == nil {
		t.Error("Start with an ended ctx succeeded")
	}
}

func TestPortClash(t *testing.T) {
	needsServer(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().(*net.TCPAddr).Port
	s := redistest.New(t, redistest.WithPorts(redistest.Config{}, taken, taken))
	if s.Port() == taken || !answers(t.Context(), s.Addr()) {
		t.Errorf("port %d, taken %d", s.Port(), taken)
	}
	if !strings.Contains(s.Log(), "Address already in use") {
		t.Errorf("the server was not started on the taken port; its log is %q", s.Log())
	}
}

// TestPortOfAnotherServer makes sure that a start is not taken for a success
// because another redis-server answers on the port.
func TestPortOfAnotherServer(t *testing.T) {
	other := redistest.New(t, redistest.Config{})
	s := redistest.New(t, redistest.WithPorts(redistest.Config{}, other.Port()))
	if s.Port() == other.Port() {
		t.Error("two servers on one port")
	}
}

func TestTwoServersAtOnce(t *testing.T) {
	a, b := redistest.New(t, redistest.Config{}), redistest.New(t, redistest.Config{})
	if err := a.Client(t).Set(t.Context(), "k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client(t).Exists(t.Context(), "k").Result(); n != 0 || err != nil {
		t.Errorf("a key of one server on the other: %d, %v", n, err)
	}
}

func TestExternal(t *testing.T) {
	own := redistest.New(t, redistest.Config{})
	s, err := redistest.External(t.Context(), own.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if !s.External() || s.Port() != own.Port() || s.PID() != 0 || !s.Running() || s.Log() != "" {
		t.Errorf("external server: %v, %d, pid %d, log %q", s.External(), s.Port(), s.PID(), s.Log())
	}
	for name, call := range map[string]func() error{
		"Kill": s.Kill, "Pause": s.Pause, "Resume": s.Resume,
		"Stop":    func() error { return s.Stop(t.Context()) },
		"Restart": func() error { return s.Restart(t.Context()) },
		"Keeping": func() error { return s.RestartKeepingData(t.Context()) },
	} {
		if err := call(); !errors.Is(err, redistest.ErrExternal) {
			t.Errorf("%s: %v, want ErrExternal", name, err)
		}
	}
	for _, bad := range []string{"nonsense", "127.0.0.1:x", "127.0.0.1:1"} {
		if _, err := redistest.External(t.Context(), bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("External(%q): %v", bad, err)
		}
	}
}
