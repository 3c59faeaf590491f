//go:build unix

package rlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// pausedHolderEnv makes the test binary be the holder of this package's pause
// test: it holds the address of the server.
const pausedHolderEnv = "LATCHKEY_TEST_PAUSED_HOLDER"

const pausedLease = 150 * time.Millisecond

// TestPausedHolderProcess is no test of its own: it is the program of the
// process that TestAStoppedHolderIsToldByItsFirstLook stops.
func TestPausedHolderProcess(t *testing.T) {
	addr := os.Getenv(pausedHolderEnv)
	if addr == "" {
		return
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := rlock.New(rdb, rlock.Options{Lease: pausedLease})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() { // a round for each line: the lock's name
		h, err := c.NewRLock(lines.Text()).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(os.Stderr, "held")
		// Looks at the hold all the time. The stamp is taken before the look:
		// what happens after it, no look can tell.
		last := h.ValidUntil().Add(-pausedLease) // it may be stopped before its first look
		for began := time.Now(); h.Err() == nil; began = time.Now() {
			last = began
		}
		lost := time.Now()
		unlock := h.Unlock(context.Background())
		fmt.Fprintln(os.Stderr, "lost", last.UnixNano(), lost.UnixNano(), errors.Is(unlock, rlock.ErrLost))
	}
}

// A holder that is stopped past its lease must not act after it: its first look
// says lost, whatever timers do. Meanwhile the other one acquires.
func TestAStoppedHolderIsToldByItsFirstLook(t *testing.T) {
	rounds := 10
	if text := os.Getenv("LATCHKEY_PAUSE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LATCHKEY_PAUSE_ROUNDS: %v", err)
		}
	}
	s := redistest.New(t, redistest.Config{})
	c := newClient(t, s, rlock.Options{Lease: pausedLease})

	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPausedHolderProcess$")
	holder.Env = append(os.Environ(), pausedHolderEnv+"="+s.Addr())
	input, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := holder.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = holder.Wait() })
	said := bufio.NewScanner(output)
	line := func() []string {
		if !said.Scan() {
			t.Fatalf("the holder said nothing more: %v", said.Err())
		}
		return strings.Fields(said.Text())
	}

	var worst time.Duration
	for round := range rounds {
		name := "paused:" + strconv.Itoa(round)
		if _, err := fmt.Fprintln(input, name); err != nil {
			t.Fatal(err)
		}
		if got := line(); got[0] != "held" {
			t.Fatalf("the holder said %q", got)
		}
		if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		h, err := c.NewRLock(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		acquired := time.Now()
		if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		got := line()
		if len(got) != 4 || got[0] != "lost" {
			t.Fatalf("the holder said %q", got)
		}
		lastHeld, lost := unixNano(t, got[1]), unixNano(t, got[2])
		if !lastHeld.Before(acquired) {
			t.Errorf("round %d: a look %v after the other had acquired said held", round, lastHeld.Sub(acquired))
		}
		if got[3] != "true" {
			t.Errorf("round %d: Unlock of the lost hold was no ErrLost", round)
		}
		worst = max(worst, lost.Sub(acquired))
		if err := h.Err(); err != nil {
			t.Errorf("round %d: the other's hold ended: %v", round, err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("round %d: the holder's late release touched the other's hold: %v", round, err)
		}
	}
	t.Logf("%d rounds: no look after the other's acquire said held; the first one after the stop came at most %v after it",
		rounds, worst.Round(time.Microsecond))
	s.CheckNoKeys(t, "paused:")
}

func unixNano(t *testing.T, text string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, n)
}
