package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// roleEnv makes the test binary play a part for a test that runs it again.
const roleEnv = "REDISTEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		redistest.Main(m)
	case "leak":
		redistest.Main(runner(func() int {
			go func() { select {} }()
			return 0
		}))
	case "dialing":
		redistest.Main(runner(closeWhileDialing))
	case "failed":
		redistest.Main(runner(func() int { return 3 }))
	case "shared":
		redistest.Main(runner(reportShared))
	case "orphan":
		redistest.Main(runner(func() int {
			if code := reportShared(); code != 0 {
				return code
			}
			select {} // until the test kills this process
		}))
	}
}

type runner func() int

func (r runner) Run() int { return r() }

// reportShared starts the shared server and prints its address and directory.
func reportShared() int {
	tb := &fakeTB{name: "role"}
	tb.run(func() {
		s := redistest.Shared(tb)
		_, _ = fmt.Fprintln(os.Stdout, s.Addr(), s.Dir())
	})
	_, _ = fmt.Fprint(os.Stderr, tb.text())
	if tb.Failed() {
		return 1
	}
	return 0
}

// closeWhileDialing closes a client whose server is away once the goroutine by
// which go-redis tries to dial has found that out too. It sleeps for a second
// then and does not notice.
func closeWhileDialing() int {
	dials := make(chan struct{}, 100)
	c := redis.NewClient(&redis.Options{PoolSize: 1, MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		dials <- struct{}{}
		return nil, errors.New("nobody there")
	}})
	err := c.Ping(context.Background()).Err()
	<-dials // of Ping
	<-dials // of the goroutine
	if err == nil || c.Close() != nil {
		return 1
	}
	return 0
}

// role runs the test binary in another role, with a server of its own.
func role(ctx context.Context, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+name, redistest.EnvAddr+"=")
	return cmd
}

func TestMainFailsOnLeak(t *testing.T) {
	out, err := role(t.Context(), "leak").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "found unexpected goroutines") {
		t.Fatalf("a leaked goroutine gave %v and this output:\n%s", err, out)
	}
}

// TestMainWaitsForClosedPools closes a client whose server was away, which
// leaves a goroutine of go-redis for up to a second.
func TestMainWaitsForClosedPools(t *testing.T) {
	if out, err := role(t.Context(), "dialing").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestMainKeepsTheExitCode(t *testing.T) {
	cmd := role(t.Context(), "failed")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("exit code of failed tests: got %v, want 3", err)
	}
}

func TestMainStopsTheSharedServer(t *testing.T) {
	needsServer(t)
	out, err := role(t.Context(), "shared").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addr, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if answers(t.Context(), addr) {
		t.Errorf("%s still answers", addr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory of the stopped server: %v, want that it is gone", err)
	}
}

// needsServer skips as New does, for tests that only use a server in a child.
func needsServer(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs a redis-server, which -short leaves out")
	}
}

// startBound is a context for a server that the test stops itself.
func startBound(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
}
