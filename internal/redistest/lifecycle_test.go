package redistest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// withKey returns a server that has the key "k".
func withKey(t *testing.T, cfg redistest.Config) (*redistest.Server, *redis.Client) {
	t.Helper()
	s := redistest.New(t, cfg)
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	return s, c
}

func keyExists(t *testing.T, c *redis.Client) bool {
	t.Helper()
	n, err := c.Exists(t.Context(), "k").Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestKillAndRestart(t *testing.T) {
	s, c := withKey(t, redistest.Config{})
	addr, pid := s.Addr(), s.PID()
	for range 2 {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Running() || answers(t.Context(), addr) {
		t.Fatal("the server answers after Kill")
	}
	if err := s.Pause(); err == nil {
		t.Error("Pause of a killed server succeeded")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.PID() == pid || !s.Running() {
		t.Errorf("after Restart: %s, pid %d; before: %s, pid %d", s.Addr(), s.PID(), addr, pid)
	}
	if keyExists(t, c) {
		t.Error("a key survived Restart without persistence")
	}
}

func TestRestartKeepingData(t *testing.T) {
	for _, cfg := range []redistest.Config{{}, {Password: "secret"}} {
		s, c := withKey(t, cfg)
		if err := s.RestartKeepingData(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !keyExists(t, c) {
			t.Error("the key is gone after RestartKeepingData")
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if keyExists(t, c) {
			t.Error("the key came back in the next plain Restart")
		}
	}
}

func TestRestartKeepingDataOfDeadServer(t *testing.T) {
	s, _ := withKey(t, redistest.Config{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.RestartKeepingData(t.Context()); err == nil {
		t.Error("data of a killed server was said to be kept")
	}
}

func TestRestartKeepsWhatTheServerPersists(t *testing.T) {
	s, c := withKey(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !keyExists(t, c) {
		t.Error("the append-only file was not loaded")
	}
}

func TestPauseAndResume(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if !s.Running() {
		t.Error("a paused server is said not to run")
	}
	// A paused server takes the connection and the bytes; only the answer is missing.
	if err := ping(t.Context(), s.Addr(), 50*time.Millisecond); err == nil {
		t.Error("a paused server answered")
	}
	for range 2 {
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ping(t.Context(), s.Addr(), 10*time.Second); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestStopAndRestartOfPausedServer(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	pauseThen(t, s, s.Restart)
	if !answers(t.Context(), s.Addr()) {
		t.Error("no answer after Restart")
	}
	pauseThen(t, s, s.Stop)
	if n := strings.Count(s.Log(), "bye bye"); n != 2 {
		t.Errorf("the server was asked to end 2 times and says so %d times:\n%s", n, s.Log())
	}
}

func pauseThen(t *testing.T, s *redistest.Server, then func(context.Context) error) {
	t.Helper()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := then(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestStopKillsOnEndedContext stops a server that does not obey: it is busy in
// a script and looks at no signal.
func TestStopKillsOnEndedContext(t *testing.T) {
	s := redistest.New(t, redistest.Config{})
	c := s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 50*time.Millisecond, -1 })
	if err := c.Eval(t.Context(), "while true do end", nil).Err(); err == nil {
		t.Fatal("an endless script ended")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err != nil || s.Running() {
		t.Errorf("Stop: %v, running %v", err, s.Running())
	}
}
