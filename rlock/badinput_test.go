package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// classesOf names all errors with a meaning of their own that err matches, so
// that a test sees one that is taken for another.
func classesOf(err error) string {
	var names []string
	for _, class := range []struct {
		name string
		err  error
	}{
		{"not acquired", rlock.ErrNotAcquired},
		{"not held", rlock.ErrNotHeld},
		{"lost", rlock.ErrLost},
		{"inner hold", rlock.ErrInnerHold},
		{"closed", rlock.ErrClosed},
		{"cancelled", context.Canceled},
		{"deadline", context.DeadlineExceeded},
		{"redis closed", redis.ErrClosed},
		{"nil", redis.Nil},
	} {
		if errors.Is(err, class.err) {
			names = append(names, class.name)
		}
	}
	return strings.Join(names, ", ")
}

// checkText checks that an error is there and says all that it should.
func checkText(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

// unused returns a client that must never be used: dialling fails the test.
func unused(t *testing.T) *redis.Client {
	t.Helper()
	var dials atomic.Int64
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("not to be dialled")
		},
	})
	t.Cleanup(func() {
		if n := dials.Load(); n > 0 {
			t.Errorf("bad input was sent: %d dials", n)
		}
		_ = rdb.Close() // it has no connection
	})
	return rdb
}

func newUnused(t *testing.T, opts rlock.Options) *rlock.Client {
	t.Helper()
	c, err := rlock.New(unused(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it returns nil
	return c
}

const tooLong = 11 * 365 * 24 * time.Hour

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: time.Hour})
	defer ring.Close() //nolint:errcheck // it has no connection
	rdb := unused(t)
	for _, c := range []struct {
		name string
		rdb  redis.UniversalClient
		opts rlock.Options
		says []string
	}{
		{"no client", nil, rlock.Options{}, []string{"nil", "New needs a go-redis client"}},
		{"a nil *Client", (*redis.Client)(nil), rlock.Options{}, []string{"nil", "New needs a go-redis client"}},
		{"a nil *ClusterClient", (*redis.ClusterClient)(nil), rlock.Options{}, []string{"nil", "New needs a go-redis client"}},
		{"a nil *Ring", (*redis.Ring)(nil), rlock.Options{}, []string{"New"}},
		{"a ring", ring, rlock.Options{}, []string{"*redis.Ring", "twice", "use one server, Sentinel or Cluster"}},
		{"a negative lease", rdb, rlock.Options{Lease: -1}, []string{"Options.Lease", "-1ns", "at least 1ms"}},
		{"a lease under 1 ms", rdb, rlock.Options{Lease: 999 * time.Microsecond}, []string{"Options.Lease", "999µs", "at least 1ms"}},
		{"an endless lease", rdb, rlock.Options{Lease: tooLong}, []string{"Options.Lease", "at most"}},
		{"negative renewals", rdb, rlock.Options{RenewEvery: -time.Second}, []string{"Options.RenewEvery", "-1s", "at least 1ms"}},
		{"hectic renewals", rdb, rlock.Options{RenewEvery: 1}, []string{"Options.RenewEvery", "1ns", "at least 1ms"}},
		{
			"renewals too rare", rdb,
			rlock.Options{Lease: 10 * time.Second, RenewEvery: 5*time.Second + 1},
			[]string{"Options.RenewEvery", "5.000000001s", "at most half of Lease (10s)", "leave it 0"},
		},
		{
			"renewals too rare for the default lease", rdb,
			rlock.Options{RenewEvery: 16 * time.Second},
			[]string{"Options.RenewEvery", "16s", "at most half of Lease (30s)"},
		},
		{"a negative bound on Unlock", rdb, rlock.Options{UnlockTimeout: -1}, []string{"Options.UnlockTimeout", "-1ns", "at least 1ms", "leave it 0"}},
		{"no time to unlock", rdb, rlock.Options{UnlockTimeout: 1}, []string{"Options.UnlockTimeout", "1ns", "at least 1ms"}},
		{"an endless prefix", rdb, rlock.Options{KeyPrefix: strings.Repeat("x", 5000)}, []string{"Options.KeyPrefix", "5000", "4096"}},
	} {
		got, err := rlock.New(c.rdb, c.opts)
		checkText(t, c.name, err, c.says...)
		if got != nil || classesOf(err) != "" {
			t.Errorf("%s: a client %v, and an error of class %q", c.name, got != nil, classesOf(err))
		}
	}
}

// TestNewAccepts: what is just within bounds.
func TestNewAccepts(t *testing.T) {
	t.Parallel()
	rdb := unused(t)
	for _, opts := range []rlock.Options{
		{},
		{Lease: time.Millisecond},
		{Lease: time.Millisecond, RenewEvery: 500 * time.Microsecond},
		{RenewEvery: 15 * time.Second},
		{Lease: 10 * time.Second, RenewEvery: 5 * time.Second, UnlockTimeout: time.Millisecond},
		{KeyPrefix: strings.Repeat("x", 4095), Logger: slog.New(slog.DiscardHandler)},
	} {
		c, err := rlock.New(rdb, opts)
		if err != nil {
			t.Errorf("%+v: %v", opts, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Errorf("%+v: Close: %v", opts, err)
		}
	}
}
