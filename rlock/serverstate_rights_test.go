package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// TestNoPassword: a server that wants a password, and one that wants another.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		password string
		match    func(error) bool
	}{
		"none":  {"", has("NOAUTH")},
		"wrong": {"guess", has("WRONGPASS")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIll(t, redistest.Config{Password: "secret"}, rlock.Options{}, func(o *redis.Options) { o.Password = c.password })
			i.refuses(t, func(err error) bool { return c.match(err) && redis.IsAuthError(err) })
		})
	}
}

// asUser makes a user with these rights, and returns a client of ours for it.
func (i *ill) asUser(t *testing.T, rules ...string) *rlock.Client {
	t.Helper()
	rules = append([]string{"reset", "on", ">secret", "~*"}, rules...)
	if err := i.admin.ACLSetUser(t.Context(), "user", rules...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := i.srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "user", "secret" })
	return clientOn(t, rdb, rlock.Options{Logger: slog.New(i.logs)})
}

// TestNoScriptRight: a user who may not run scripts learns it at once.
func TestNoScriptRight(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	i.c = i.asUser(t, "&*", "+@all", "-evalsha")
	if n := i.scripts(t, func() { i.refuses(t, redis.IsPermissionError) }); n != 0 {
		t.Errorf("%d scripts were executed", n)
	}
}

// TestNoKeyRight: a user who may not touch the key learns it at once.
func TestNoKeyRight(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	i.c = i.asUser(t, "resetkeys", "~app:*", "&*", "+@all")
	i.refuses(t, redis.IsPermissionError)
	i.works(t, "app:lock")
}

// TestNoChannelRight: without the unlock channel locks work, and those who wait
// find the free one by looking. That is reported once, for all locks.
func TestNoChannelRight(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	owner := i.c
	i.c = i.asUser(t, "resetchannels", "+@all")
	for range 3 {
		i.works(t, "lock")
	}
	for _, name := range []string{"lock", "other lock"} {
		// The lease ends: the waiter wakes by the key's TTL.
		h, err := owner.NewRLock(name).Lock(t.Context(), rlock.WithLease(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		i.works(t, name)
		if took := time.Since(start); took > 300*time.Millisecond+slack {
			t.Errorf("%s was free after 300ms, and taken after %v", name, took)
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock of a hold that ran out: %v", err)
		}
	}
	if reports := i.logs.that(slog.LevelWarn, "channel"); len(reports) != 1 {
		t.Errorf("the missing right was reported %d times:\n%s", len(reports), strings.Join(reports, "\n"))
	}
}

// TestNoChannelRightRecheck: a lock that was freed long before its TTL is found
// at the next look, in about 5 s.
func TestNoChannelRightRecheck(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{})
	h := i.lock(t, "lock")
	client := i.asUser(t, "resetchannels", "+@all")
	monitor := i.srv.Monitor(t)
	got := make(chan time.Time, 1)
	go func() {
		h, err := client.NewRLock("lock").Lock(t.Context())
		got <- time.Now()
		if err == nil {
			err = h.Unlock(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}()
	// It has attempted, and has been refused the channel.
	redistest.Eventually(t, 10*time.Second, func() bool { return len(i.logs.that(slog.LevelWarn, "channel")) > 0 }, "the refusal")
	freed := time.Now()
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-got:
		if waited := at.Sub(freed); waited > 6*time.Second+slack {
			t.Errorf("the free lock was taken after %v", waited)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the waiter waits on")
	}
	attempts := 0
	for _, call := range monitor.Stop(t) {
		if call.Name() == "EVALSHA" && !call.FromScript() {
			attempts++
		}
	}
	// Two attempts, and the two releases, each perhaps once more.
	if attempts > 8 {
		t.Errorf("%d scripts in 5 s: a waiter without a channel polls", attempts)
	}
}

// TestReadOnly: a replica is not the server to ask, and may become it. A hold
// that is unlocked meanwhile is released when it has.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{UnlockTimeout: 300 * time.Millisecond})
	h := i.lock(t, "held")
	i.do(t, "REPLICAOF", "127.0.0.1", "1") // nobody there
	i.triesOn(t, redis.IsReadOnlyError)
	i.failsOnce(t, redis.IsReadOnlyError)
	if _, err := i.c.NewRLock("lock").Info(t.Context()); err != nil {
		t.Errorf("Info, which only reads: %v", err)
	}
	err := h.Unlock(t.Context())
	if !redis.IsReadOnlyError(err) || classesOf(err) != "" {
		t.Errorf("Unlock: %v of class %q", err, classesOf(err))
	}
	i.do(t, "REPLICAOF", "NO", "ONE")
	i.works(t, "lock")
	// The key goes in the background, long before its lease of 30 s.
	redistest.Eventually(t, 10*time.Second, func() bool { return i.admin.Exists(t.Context(), "held").Val() == 0 },
		"the release is caught up on")
}

// TestFull: a server without memory says so to who wants a new lock, and serves
// who has one.
func TestFull(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{}, rlock.Options{RenewEvery: 50 * time.Millisecond})
	h := i.lock(t, "held")
	i.do(t, "CONFIG", "SET", "maxmemory", "1")
	i.refuses(t, redis.IsOOMError)
	inner, err := i.c.NewRLock("held").Lock(h.Context(t.Context()))
	if err != nil {
		t.Fatalf("re-entry: %v", err)
	}
	before := h.ValidUntil()
	redistest.Eventually(t, 10*time.Second, func() bool { return h.ValidUntil().After(before) }, "a renewal")
	if err := errors.Join(inner.Unlock(t.Context()), h.Unlock(t.Context())); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	i.do(t, "CONFIG", "SET", "maxmemory", "0")
	i.works(t, "lock")
}

// TestRenamedCommand: a server without EVALSHA says so at once.
func TestRenamedCommand(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{Conf: "rename-command EVALSHA \"\"\n"}, rlock.Options{})
	i.refuses(t, func(err error) bool { return err != nil && strings.Contains(err.Error(), "unknown command") })
}

// TestBusy: a server that is busy with a script is waited for within the bound,
// and is not a holder.
func TestBusy(t *testing.T) {
	t.Parallel()
	i := newIll(t, redistest.Config{Args: []string{"--busy-reply-threshold", "100"}}, rlock.Options{})
	i.works(t, "lock")
	busy := i.keepBusy(t)
	i.triesOn(t, has("BUSY"))
	i.failsOnce(t, has("BUSY"))
	got := i.startTrying(t)
	i.do(t, "SCRIPT", "KILL")
	if err := <-busy; err == nil {
		t.Error("the busy script was not killed")
	}
	if err := <-got; err != nil {
		t.Errorf("TryLock(1m): %v", err)
	}
}

// keepBusy runs a script that ends by SCRIPT KILL alone, and returns when the
// server says that it is busy.
func (i *ill) keepBusy(t *testing.T) <-chan error {
	t.Helper()
	rdb := i.srv.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	ended := make(chan error, 1)
	go func() { ended <- rdb.Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err() }()
	redistest.Eventually(t, 10*time.Second, func() bool { return has("BUSY")(i.admin.Ping(t.Context()).Err()) }, "BUSY")
	return ended
}
