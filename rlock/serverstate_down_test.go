package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// fromNetwork checks for an error of the network: no connection, or no answer.
func fromNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
}

// TestServerDown: bounded calls try until their bound and return what kept
// them from Redis; the others return it at once. After a restart the same
// objects work.
func TestServerDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook  func(*redis.Options)
		match func(error) bool
	}{
		"refused at once":     {fastDial, is(syscall.ECONNREFUSED)},
		"go-redis' own tries": {func(*redis.Options) {}, fromNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIll(t, redistest.Config{}, rlock.Options{}, c.hook)
			i.works(t, "lock")
			if err := i.srv.Kill(); err != nil {
				t.Fatal(err)
			}
			i.triesOn(t, c.match)
			i.failsOnce(t, c.match)
			if _, err := i.c.NewRLock("lock").Info(t.Context()); !c.match(err) || classesOf(err) != "" {
				t.Errorf("Info: %v", err)
			}
			if err := i.srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			i.works(t, "lock")
		})
	}
}

// TestServerBack: a bounded call that began while the server was down gets the
// lock when it is back.
func TestServerBack(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{}, fastDial)
	if err := i.srv.Kill(); err != nil {
		t.Fatal(err)
	}
	got := i.startTrying(t)
	if err := i.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestKilledWhileWaiting: a waiter without a bound that sleeps in the queue
// survives the server's end, and gets the lock when it is back without keys.
func TestKilledWhileWaiting(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{}, fastDial)
	h := i.lock(t, "lock")
	waiting := clientOn(t, i.rdb, rlock.Options{})
	got := make(chan error, 1)
	go func() {
		h, err := waiting.NewRLock("lock").Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	redistest.Eventually(t, 10*time.Second, func() bool { return i.subscribed(t) == 1 }, "the waiter sleeps")
	if err := i.srv.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := i.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the waiter waits on")
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
		t.Errorf("Unlock of a hold that the server forgot: %v", err)
	}
}

// TestUnlockWhileDown: the outcome is unknown, and the error says so.
func TestUnlockWhileDown(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{UnlockTimeout: 300 * time.Millisecond}, fastDial)
	h := i.lock(t, "lock")
	if err := i.srv.Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err := h.Unlock(t.Context())
	checkText(t, "Unlock", err, "outcome unknown")
	if took := time.Since(start); !is(syscall.ECONNREFUSED)(err) || classesOf(err) != "" || took > 300*time.Millisecond+slack {
		t.Errorf("Unlock: %v of class %q after %v", err, classesOf(err), took)
	}
	if !errors.Is(h.Err(), rlock.ErrNotHeld) || errors.Is(h.Err(), rlock.ErrLost) {
		t.Errorf("the hold's error is %v", h.Err())
	}
	if err := i.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.works(t, "lock")
}

// TestLoading: a server that loads its data is waited for within the bound.
func TestLoading(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{
		// It answers after every 1024 bytes: after every key, of which each takes 2 ms.
		AcceptLoading: true, Args: []string{
			"--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no",
		},
	}, rlock.Options{})
	const keys = 6000 // 12 s at that delay, which is lifted below
	value := strings.Repeat("x", 1024)
	load := func(command string) {
		pipe := i.admin.Pipeline()
		for n := range keys {
			pipe.Do(t.Context(), command, fmt.Sprint("data", n), value)
		}
		_, _ = pipe.Exec(t.Context()) // DEL counts the value as a key that is not there
	}
	load("SET")
	if err := i.srv.RestartKeepingData(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := i.admin.Get(t.Context(), "data0").Err(); !redis.IsLoadingError(err) {
		t.Fatalf("the server is not loading: %v", err)
	}
	i.failsOnce(t, redis.IsLoadingError)
	i.triesOn(t, redis.IsLoadingError)
	got := i.startTrying(t)
	i.do(t, "CONFIG", "SET", "key-load-delay", "0")
	if err := <-got; err != nil {
		t.Error(err)
	}
	load("DEL")
}

// TestPaused: a server that keeps writes waiting is no holder. What is granted
// after the caller has left is released.
func TestPaused(t *testing.T) {
	t.Parallel()
	// Calls without a bound wait for an answer for a third of the lease.
	i := newIll(t, redistest.Config{}, rlock.Options{Lease: 3 * time.Second})
	i.works(t, "lock")
	i.do(t, "CLIENT", "PAUSE", 60_000, "WRITE")
	i.triesOn(t, fromNetwork)
	i.failsOnce(t, fromNetwork)
	i.do(t, "CLIENT", "UNPAUSE")
	i.works(t, "lock")
}

// TestPauseThatEnds: a bounded call outlasts it.
func TestPauseThatEnds(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	i.do(t, "CLIENT", "PAUSE", 400, "WRITE")
	i.works(t, "lock")
}

// TestSnapshotsFail: a server that refuses writes because it cannot save
// (MISCONF) refuses the release too; the hold is over all the same, and its
// lease frees the lock.
func TestSnapshotsFail(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{Lease: 2 * time.Second})
	h := i.lock(t, "lock")
	repair := i.breakSnapshots(t)
	i.refusesUnlock(t, h)
	redistest.Eventually(t, 2*time.Second+slack, func() bool { return i.admin.Exists(t.Context(), "lock").Val() == 0 },
		"the lease frees the lock")
	i.refuses(t, has("MISCONF"))
	repair()
	i.works(t, "lock")
}

func (i *ill) refusesUnlock(t *testing.T, h *rlock.Hold) {
	t.Helper()
	err := h.Unlock(t.Context())
	if !has("MISCONF")(err) || classesOf(err) != "" {
		t.Errorf("Unlock: %v of class %q", err, classesOf(err))
	}
	if !errors.Is(h.Err(), rlock.ErrNotHeld) || errors.Is(h.Err(), rlock.ErrLost) {
		t.Errorf("the hold's error is %v", h.Err())
	}
}

// breakSnapshots lets the server fail to save: its file cannot be put where a
// directory is. It returns what undoes that.
func (i *ill) breakSnapshots(t *testing.T) (repair func()) {
	t.Helper()
	dir, err := i.admin.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(dir["dir"], "dump.rdb")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	i.do(t, "CONFIG", "SET", "save", "3600 1")
	i.do(t, "BGSAVE")
	refused := func() bool { return has("MISCONF")(i.admin.Set(t.Context(), "any", "x", time.Millisecond).Err()) }
	redistest.Eventually(t, 10*time.Second, refused, "the server refuses writes")
	return func() {
		if err := os.Remove(obstacle); err != nil {
			t.Fatal(err)
		}
		i.do(t, "CONFIG", "SET", "save", "")
		redistest.Eventually(t, 10*time.Second, func() bool { return !refused() }, "the server takes writes")
	}
}
