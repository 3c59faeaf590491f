package redistest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Name() string
	Cleanup(fn func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}

// New starts a server that lives as long as the test. Without a redis-server the
// test fails with the line that installs one; under -short it is skipped. When
// the test fails, the end of the server's log is shown.
func New(tb TB, cfg Config) *Server {
	tb.Helper()
	skipIfShort(tb)
	s, err := Start(context.Background(), cfg)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			tb.Errorf("%v", err)
		}
		if tb.Failed() {
			tb.Logf("log of the redis-server on %s:\n%s", s.Addr(), s.Log())
		}
	})
	return s
}

// Shared returns the server that the tests of one binary share: the one that
// EnvAddr names, or one that the first call starts and Main stops. Its keys are
// kept apart by Prefix; a test that pauses, restarts or configures a server
// takes one of its own from New. Under -short the test is skipped.
func Shared(tb TB) *Server {
	tb.Helper()
	skipIfShort(tb)
	s, err := shared.get()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

func skipIfShort(tb TB) {
	tb.Helper()
	if short() {
		tb.Skip("this test needs a redis-server, which -short leaves out")
	}
}

// short is testing.Short, without linking package testing into commands.
func short() bool {
	f := flag.Lookup("test.short")
	return f != nil && f.Value.String() == "true"
}

// shared is the server of Shared, one in a process by the nature of the thing.
var shared sharedServer //nolint:gochecknoglobals // see above

type sharedServer struct {
	mu     sync.Mutex
	server *Server
	err    error
}

// get starts the server on the first call and remembers how that went.
func (h *sharedServer) get() (*Server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server == nil && h.err == nil {
		h.server, h.err = startShared(context.Background())
	}
	return h.server, h.err
}

func startShared(ctx context.Context) (*Server, error) {
	if addr := os.Getenv(EnvAddr); addr != "" {
		return external(ctx, addr)
	}
	return Start(ctx, Config{})
}

// stop ends the server if get started one.
func (h *sharedServer) stop(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server == nil || h.server.external {
		return nil
	}
	return h.server.Stop(ctx)
}

// external makes a Server of one that somebody else runs, and asks whether it
// answers.
func external(ctx context.Context, addr string) (*Server, error) {
	port, err := splitAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("redistest: %s=%q: want host:port: %w", EnvAddr, addr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	c, err := dialRaw(ctx, "tcp", addr, "")
	if err != nil {
		return nil, fmt.Errorf("redistest: %s=%q: %w", EnvAddr, addr, err)
	}
	reply, err := c.do(ctx, "PING")
	if err == nil && reply != "+PONG" {
		err = errors.New(reply)
	}
	if cerr := c.Close(); err == nil && !errors.Is(cerr, net.ErrClosed) {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: %s=%q: %w", EnvAddr, addr, err)
	}
	return &Server{addr: addr, port: port, external: true}, nil
}
