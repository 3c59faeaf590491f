package pubsub_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/pubsub"
)

// patience bounds every wait for something that must happen; nothing is
// measured with it.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server of one test's own.
type server struct {
	port string
	args []string
	dir  string
	cmd  *exec.Cmd
}

func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a redis-server")
	}
	s := &server{port: freePort(tb), args: args, dir: tb.TempDir()}
	s.start(tb)
	tb.Cleanup(s.kill)
	return s
}

func (s *server) start(tb testing.TB) {
	tb.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatal("redis-server is missing: apt-get install redis-server, brew install redis, or run the tests in a container of the image redis")
	}
	var args []string
	if len(s.args) > 0 && strings.HasSuffix(s.args[0], ".conf") {
		args = append(args, s.args[0])
		s.args = s.args[1:]
	}
	args = append(args, "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
	s.cmd = exec.CommandContext(context.Background(), bin, append(args, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := s.client(tb, nil)
	eventually(tb, "redis-server answers", func() bool {
		err := c.Ping(context.Background()).Err()
		return err == nil || redis.IsAuthError(err)
	})
}

func (s *server) addr() string { return "127.0.0.1:" + s.port }

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

// client returns a client that is closed at the end of the test.
func (s *server) client(tb testing.TB, change func(*redis.Options)) *redis.Client {
	tb.Helper()
	o := &redis.Options{Addr: s.addr(), MaxRetries: -1}
	if change != nil {
		change(o)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func newHub(tb testing.TB, rdb redis.UniversalClient, o pubsub.Options) *pubsub.Hub {
	tb.Helper()
	h, err := pubsub.New(rdb, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = h.Close() })
	return h
}

func mustSubscribe(tb testing.TB, h *pubsub.Hub, channel string) *pubsub.Subscription {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := h.Subscribe(ctx, channel)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func mustWake(tb testing.TB, s *pubsub.Subscription, why string) {
	tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-s.Wake():
	case <-timeout.C:
		tb.Fatalf("no wake: %s", why)
	}
}

func mustPublish(tb testing.TB, c redis.UniversalClient, channel string) int64 {
	tb.Helper()
	n, err := c.Publish(context.Background(), channel, "x").Result()
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func drain(s *pubsub.Subscription) {
	select {
	case <-s.Wake():
	default:
	}
}

func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// subscribers returns the ids of the server's subscription connections.
func subscribers(tb testing.TB, c *redis.Client) []string {
	tb.Helper()
	list, err := c.Do(tb.Context(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		tb.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(list) {
		if id, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func killSubscribers(tb testing.TB, c *redis.Client) {
	tb.Helper()
	n, err := c.ClientKillByFilter(tb.Context(), "type", "pubsub").Result()
	if err != nil || n == 0 {
		tb.Fatalf("CLIENT KILL: %d, %v", n, err)
	}
}

func writeConfig(tb testing.TB, lines string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "redis.conf")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func freePort(tb testing.TB) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // The port is free either way.
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
