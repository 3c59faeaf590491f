package main

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestMain also fails a run that leaves a goroutine behind.
func TestMain(m *testing.M) { redistest.Main(m) }

// outcome is what a run of the program came to.
type outcome struct {
	code           int
	stdout, stderr string
}

// play runs the program with these strategies, and with all real ones if there
// are none.
func play(ctx context.Context, t *testing.T, strategies []strategy, args ...string) outcome {
	t.Helper()
	if strategies == nil {
		strategies = allStrategies()
	}
	var stdout, stderr bytes.Buffer
	p := program{stdout: &stdout, stderr: &stderr, strategies: strategies, prefix: redistest.Prefix(t)}
	code := p.run(ctx, args)
	return outcome{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// startServer starts an embedded server and returns its URL, a client of it,
// and what ends both.
func startServer(t *testing.T) (url string, rdb *redis.Client) {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return "redis://" + server.Addr(), rdb
}

// keysIn lists all keys of a server.
func keysIn(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	keys, err := rdb.Keys(context.WithoutCancel(t.Context()), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// signalWriter is a buffer that says when something was written.
type signalWriter struct {
	mu    sync.Mutex
	text  bytes.Buffer
	once  sync.Once
	wrote chan struct{}
}

func newSignalWriter() *signalWriter { return &signalWriter{wrote: make(chan struct{})} }

func (w *signalWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.once.Do(func() { close(w.wrote) })
	return w.text.Write(p)
}

func (w *signalWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
