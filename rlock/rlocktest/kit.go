package rlocktest

import (
	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// TB is what a Kit needs of a test. Every testing.TB is one. As there, Fatalf
// does not return.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Kit is a client of locks and the Redis behind it, for one test. New makes
// one; the zero value is of no use.
//
// Its methods are safe for concurrent use. Occupy, Lose, Held and the assertions
// can end the test, as testing.TB's Fatalf does, so they belong into the test's
// own goroutine: Held and the assertions do so for a name that Redis cannot
// carry, and after the end of the test.
type Kit struct {
	tb      TB
	prefix  string // Options.KeyPrefix
	server  *server
	network *network      // between Client and the server
	past    *redis.Client // past the network
	ledger  *ledger

	client *rlock.Client
	others *rlock.Client // all owners that are not Client
}

// New starts a Redis inside the process, with no key in it, and a client of it.
// opts are the client's; the zero value means the defaults of rlock. When the
// test ends, the client is closed, and nothing of the Kit is left. Options that
// rlock.New refuses end the test.
//
// A test in a testing/synctest bubble calls New inside it, with the bubble's t.
func New(tb TB, opts rlock.Options) *Kit {
	tb.Helper()
	k := &Kit{tb: tb, prefix: opts.KeyPrefix, server: newServer()}
	k.network = &network{server: k.server, subscribers: make(map[*link]struct{})}
	k.past = newRedisClient(k.server.dial)
	rdb := newRedisClient(k.network.dial)
	rdb.AddHook(k.network)
	tb.Cleanup(func() {
		k.network.fail(nil) // so that releases still to be sent arrive
		for _, c := range []*rlock.Client{k.client, k.others} {
			if c != nil {
				_ = c.Close() // it has no way to fail
			}
		}
		_, _ = rdb.Close(), k.past.Close() // only one that was closed before fails
		k.server.close()
	})

	var err error
	if k.client, err = rlock.New(rdb, opts); err != nil {
		tb.Fatalf("rlocktest: New: %v", err)
		return nil
	}
	opts.Logger = nil // which is for what the code under test does
	if k.others, err = rlock.New(k.past, opts); err != nil {
		tb.Fatalf("rlocktest: New: %v", err)
		return nil
	}
	k.ledger = newLedger(k.client.ID() + ":")
	if err := k.server.start(k.ledger.see); err != nil {
		tb.Fatalf("rlocktest: New: %v", err)
		return nil
	}
	return k
}

// Client returns the client for the code under test: always the same one. The
// Kit closes it when the test ends; that the code closes it before does no harm.
func (k *Kit) Client() *rlock.Client { return k.client }
