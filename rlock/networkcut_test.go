package rlock_test

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// The network drops every byte without a word while a renewal may be under way:
// by the time that another owner is in, the holder has been told.
func TestAHolderCutOffIsToldBeforeAnotherIsIn(t *testing.T) {
	const lease = 150 * time.Millisecond
	rounds := 5
	if text := os.Getenv("LATCHKEY_CUT_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LATCHKEY_CUT_ROUNDS: %v", err)
		}
	}
	s := redistest.New(t, redistest.Config{})
	proxy := faultproxy.New(t, s.Addr())
	// A read that hangs must not be what tells: it hangs longer than the lease.
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 5 * time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	cut, err := rlock.New(rdb, rlock.Options{Lease: lease, UnlockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cut.Close() })
	other := newClient(t, s, rlock.Options{Lease: lease})

	earliest, latest := time.Hour, -time.Hour
	for round := range rounds {
		name := "cut:" + strconv.Itoa(round)
		h, err := cut.NewRLock(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan time.Time, 1)
		go func() { <-h.Lost(); told <- time.Now() }()
		proxy.Blackhole()
		taken, err := other.NewRLock(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in := time.Now()
		if err := h.Err(); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("round %d: another owner is in, and the holder's Err is %v", round, err)
		}
		before := in.Sub(<-told)
		earliest, latest = min(earliest, before), max(latest, before)
		if err := h.Unlock(t.Context()); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("round %d: Unlock of the lost hold = %v", round, err)
		}
		proxy.Heal()
		proxy.KillConnections()
		if err := taken.Unlock(t.Context()); err != nil {
			t.Errorf("round %d: the other's hold was touched: %v", round, err)
		}
	}
	t.Logf("%d rounds: the holder was told %v to %v before the other was in", rounds,
		earliest.Round(time.Microsecond), latest.Round(time.Microsecond))
	s.CheckNoKeys(t, "cut:")
}
