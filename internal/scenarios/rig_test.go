//go:build scenarios

package scenarios_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/rlock"
)

// fullEnv, set to 1, asks for as many rounds as the cases say.
const fullEnv = "LATCHKEY_FULL"

const (
	// long is a lease that no test can confuse with a wake-up: whoever waits
	// for it to end fails.
	long = 30 * time.Second
	// stuck is when a test gives up on what has no promised time.
	stuck = 20 * time.Second
	// recheck is the time after which a waiter asks Redis though nothing woke
	// it, with its spread.
	recheck = 5500 * time.Millisecond
)

// rounds returns how many rounds a test makes: the full number that its case
// asks for under LATCHKEY_FULL=1, and else the reduced one.
func rounds(t *testing.T, full, reduced int) int {
	t.Helper()
	switch text := os.Getenv(fullEnv); text {
	case "1":
		return full
	case "", "0":
		return min(reduced, full)
	default:
		t.Fatalf("%s is %q: 1 asks for the full number of rounds", fullEnv, text)
		return 0
	}
}

// rig is what a test works with: a server, lock names that no other test uses,
// a connection that looks on from outside, and the record of who is inside.
type rig struct {
	*redistest.Server
	t      *testing.T
	rdb    *redis.Client // the observer
	prefix string        // of every name in this test
	name   string        // the lock that most tests are about
	alone  bool          // nobody else uses the server

	mu     sync.Mutex
	inside map[string][]*stay // by lock name; guarded by mu
}

// newRig is for tests that share a server.
func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, redistest.Shared(t), false)
}

// newRigAlone is for tests that stop, configure, measure or look at the whole
// of their server.
func newRigAlone(t *testing.T, cfg redistest.Config) *rig {
	t.Helper()
	return rigOn(t, redistest.New(t, cfg), true)
}

func rigOn(t *testing.T, s *redistest.Server, alone bool) *rig {
	t.Helper()
	prefix := redistest.Prefix(t)
	return &rig{
		Server: s, t: t, rdb: s.Client(t), prefix: prefix, name: prefix + "lock", alone: alone,
		inside: make(map[string][]*stay),
	}
}

// proxy starts a proxy in front of the server. Make it before the clients that
// use it, so that it ends after them.
func (r *rig) proxy() *faultproxy.Proxy {
	r.t.Helper()
	return faultproxy.New(r.t, r.Addr())
}

// client returns a new client on connections of its own, which goes through the
// proxies, if one is given. At the end of the test, with the client still open,
// the rig looks for what was left behind.
func (r *rig) client(opts rlock.Options, hooks ...func(*redis.Options)) *rlock.Client {
	r.t.Helper()
	c, err := rlock.New(r.Client(r.t, hooks...), opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.check()
		_ = c.Close()
	})
	return c
}

// clients returns n new clients.
func (r *rig) clients(n int, opts rlock.Options, hooks ...func(*redis.Options)) []*rlock.Client {
	r.t.Helper()
	all := make([]*rlock.Client, n)
	for i := range all {
		all[i] = r.client(opts, hooks...)
	}
	return all
}

// through is a hook for client: its connections go through the proxy.
func through(p *faultproxy.Proxy) func(*redis.Options) {
	return func(o *redis.Options) { o.Addr = p.Addr() }
}

// check asks, at the end of a test that passed so far, what it left in Redis:
// on a server of its own there may be no key and no channel at all.
func (r *rig) check() {
	r.t.Helper()
	if r.t.Failed() { // a test that stopped halfway leaves what explains nothing
		return
	}
	if r.alone {
		r.CheckNoKeys(r.t, "")
		r.CheckNoChannels(r.t, "*")
		return
	}
	r.CheckNoKeys(r.t, r.prefix)
	r.CheckNoChannels(r.t, "*"+r.prefix+"*")
}

// lock returns the test's main lock as a new client with these options sees it.
func (r *rig) lock(opts rlock.Options, hooks ...func(*redis.Options)) *rlock.RLock {
	r.t.Helper()
	return r.client(opts, hooks...).NewRLock(r.name)
}

// mustLock acquires a lock that is to be had, and records its holder as inside.
func (r *rig) mustLock(lock *rlock.RLock, opts ...rlock.LockOption) *rlock.Hold {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), stuck)
	defer cancel()
	h, err := lock.Lock(ctx, opts...)
	if err != nil {
		r.t.Fatalf("Lock: %v", err)
	}
	r.enter(h)
	return h
}

// mustUnlock records the holder as outside and unlocks.
func (r *rig) mustUnlock(h *rlock.Hold) {
	r.t.Helper()
	r.leave(h)
	if err := h.Unlock(r.t.Context()); err != nil {
		r.t.Errorf("Unlock: %v", err)
	}
}

// fields returns the hash of the test's main lock, empty when it is free.
func (r *rig) fields() map[string]string {
	r.t.Helper()
	fields, err := r.rdb.HGetAll(r.t.Context(), r.name).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return fields
}

// wantHeld checks that Redis has this hold's owner, and nobody else, as the
// holder of its lock, with this count.
func (r *rig) wantHeld(h *rlock.Hold, count string) {
	r.t.Helper()
	fields, err := r.rdb.HGetAll(r.t.Context(), h.Name()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(fields) != 1 || fields[h.Owner()] != count {
		r.t.Errorf("in Redis there is %v, want %s = %s alone", fields, h.Owner(), count)
	}
}

// wantFree checks that nobody has the test's main lock.
func (r *rig) wantFree() {
	r.t.Helper()
	if fields := r.fields(); len(fields) != 0 {
		r.t.Errorf("in Redis there is %v, want nothing", fields)
	}
}

// ttl returns what Redis says the test's main lock has left.
func (r *rig) ttl() time.Duration {
	r.t.Helper()
	ttl, err := r.rdb.PTTL(r.t.Context(), r.name).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return ttl
}

// del removes the test's main lock behind everybody's back, without a message.
func (r *rig) del() {
	r.t.Helper()
	if n, err := r.rdb.Del(r.t.Context(), r.name).Result(); n != 1 || err != nil {
		r.t.Fatalf("DEL of the lock: %d, %v", n, err)
	}
}

// subscribers returns how many connections are subscribed to a lock's channel.
func (r *rig) subscribers(name string) int64 {
	r.t.Helper()
	channel := wire.Channel(name)
	n, err := r.rdb.PubSubNumSub(r.t.Context(), channel).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return n[channel]
}

// awaitSubscribers returns when n connections are subscribed to a lock's channel.
func (r *rig) awaitSubscribers(name string, n int64) {
	r.t.Helper()
	redistest.Eventually(r.t, stuck, func() bool { return r.subscribers(name) == n },
		"%d subscriptions to the channel of %s", n, name)
}
