package latchkey_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

const (
	// late is how much later than promised a busy machine may show a thing.
	late = 2 * time.Second
	// stuck is when a test gives up on what has no promised time.
	stuck = 20 * time.Second
	// lease is for tests that wait for a lease to be renewed or to end: long
	// enough for a busy machine to renew it, every third of it, in time.
	lease = time.Second
	// recheck is the time after which a waiter asks Redis though nothing woke
	// it, with its spread, and woken the bound on everything that must not
	// depend on it.
	recheck = 5500 * time.Millisecond
	woken   = 3 * time.Second
)

// nobody is an address at which no server answers.
const nobody = "127.0.0.1:1"

func TestMain(m *testing.M) { redistest.Main(m) }

// rig is what a test works with: a server, a name that no other test uses, and
// a connection that looks on from outside.
type rig struct {
	*redistest.Server
	t            *testing.T
	rdb          *redis.Client
	prefix, name string
}

// newRig is for tests that share a server.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return rigOn(t, redistest.Shared(t))
}

// newRigAlone is for tests that stop, configure or listen to their server.
func newRigAlone(t *testing.T, cfg redistest.Config) *rig {
	t.Helper()
	t.Parallel()
	return rigOn(t, redistest.New(t, cfg))
}

func rigOn(t *testing.T, s *redistest.Server) *rig {
	t.Helper()
	prefix := redistest.Prefix(t)
	return &rig{Server: s, t: t, rdb: s.Client(t), prefix: prefix, name: prefix + "lock"}
}

// deadClient returns a go-redis client without a server.
func deadClient(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: nobody})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// client returns a new client on connections of its own. At the end of the
// test, with the client still open, no key and no channel may be left.
func (r *rig) client(opts rlock.Options, hooks ...func(*redis.Options)) *rlock.Client {
	r.t.Helper()
	c, err := rlock.New(r.Client(r.t, hooks...), opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if !r.t.Failed() { // a test that stopped halfway leaves what explains nothing
			r.CheckNoKeys(r.t, r.prefix)
			r.CheckNoChannels(r.t, "redisson_lock__channel:*"+r.prefix+"*")
		}
		_ = c.Close()
	})
	return c
}

// lock returns the test's lock as a new client with default options sees it.
func (r *rig) lock() *rlock.RLock {
	r.t.Helper()
	return r.client(rlock.Options{}).NewRLock(r.name)
}

// shortLock is lock with the short lease, kept by the watchdog.
func (r *rig) shortLock() *rlock.RLock {
	r.t.Helper()
	return r.client(rlock.Options{Lease: lease}).NewRLock(r.name)
}

// inRedis returns the lock's hash, empty when the lock is free.
func (r *rig) inRedis() map[string]string {
	r.t.Helper()
	fields, err := r.rdb.HGetAll(r.t.Context(), r.name).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return fields
}

func (r *rig) wantFree() {
	r.t.Helper()
	if fields := r.inRedis(); len(fields) != 0 {
		r.t.Errorf("in Redis there is %v, want nothing", fields)
	}
}

// wantHeld checks that the lock is held by this hold's owner, with this count.
func (r *rig) wantHeld(h *rlock.Hold, count string) {
	r.t.Helper()
	if fields := r.inRedis(); len(fields) != 1 || fields[h.Owner()] != count {
		r.t.Errorf("in Redis there is %v, want %s = %s alone", fields, h.Owner(), count)
	}
}

// ttl returns what Redis says the lock has left.
func (r *rig) ttl() time.Duration {
	r.t.Helper()
	ttl, err := r.rdb.PTTL(r.t.Context(), r.name).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return ttl
}

func (r *rig) wantTTL(low, high time.Duration) {
	r.t.Helper()
	if ttl := r.ttl(); ttl <= low || ttl > high {
		r.t.Errorf("PTTL is %v, want above %v and at most %v", ttl, low, high)
	}
}

// del removes the lock behind everybody's back, without a message.
func (r *rig) del() {
	r.t.Helper()
	if n, err := r.rdb.Del(r.t.Context(), r.name).Result(); n != 1 || err != nil {
		r.t.Fatalf("DEL of the lock: %d, %v", n, err)
	}
}

// awaitWaiter returns when somebody has subscribed to the unlock channel of a
// lock without braces in its name.
func (r *rig) awaitWaiter(name string) {
	r.t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	redistest.Eventually(r.t, stuck, func() bool {
		n, err := r.rdb.PubSubNumSub(r.t.Context(), channel).Result()
		return err == nil && n[channel] > 0
	}, "a subscription to %s", channel)
}

func (r *rig) pause() {
	r.t.Helper()
	if err := r.Pause(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) resume() {
	r.t.Helper()
	if err := r.Resume(); err != nil {
		r.t.Fatal(err)
	}
}

// mustLock acquires a lock that is to be had.
func mustLock(ctx context.Context, t *testing.T, lock *rlock.RLock, opts ...rlock.LockOption) *rlock.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, stuck)
	defer cancel()
	h, err := lock.Lock(ctx, opts...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

func mustUnlock(t *testing.T, h *rlock.Hold) {
	t.Helper()
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// outlive returns when renewals have made the hold valid for well longer than
// it was when outlive was called.
func outlive(t *testing.T, h *rlock.Hold) {
	t.Helper()
	end := h.ValidUntil().Add(lease / 2)
	redistest.Eventually(t, stuck, func() bool {
		return h.Err() != nil || h.ValidUntil().After(end)
	}, "renewals")
	if err := h.Err(); err != nil {
		t.Fatalf("the hold was lost: %v", err)
	}
}

// outcome is what a Lock in the background came to.
type outcome struct {
	hold *rlock.Hold
	err  error
}

// begin runs a Lock in the background.
func begin(lock func() (*rlock.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		h, err := lock()
		done <- outcome{h, err}
	}()
	return done
}

// await receives from a channel that has to bring something, or to be closed,
// within a bound.
func await[T any](t *testing.T, ch <-chan T, within time.Duration, what string) T {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case got := <-ch:
		return got
	case <-limit.C:
		t.Fatalf("not within %v: %s", within, what)
		panic("unreachable")
	}
}

// awaitHold returns the hold that a Lock in the background got.
func awaitHold(t *testing.T, ch <-chan outcome, within time.Duration) *rlock.Hold {
	t.Helper()
	got := await(t, ch, within, "a waiter gets the lock")
	if got.err != nil {
		t.Fatalf("waiting for the lock: %v", got.err)
	}
	return got.hold
}

// unlockAll unlocks what the waiters get, each as soon as it has it, until the
// last one has got it or given up.
func unlockAll(t *testing.T, waiters []<-chan outcome) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var wg sync.WaitGroup
		for _, waiter := range waiters {
			wg.Go(func() {
				if got := <-waiter; got.err == nil {
					mustUnlock(t, got.hold)
				} else if !errors.Is(got.err, rlock.ErrNotAcquired) {
					t.Error(got.err)
				}
			})
		}
		wg.Wait()
	}()
	await(t, ended, stuck, "all waiters have had their turn")
}

func awaitErr(t *testing.T, ch <-chan outcome, within time.Duration) error {
	t.Helper()
	got := await(t, ch, within, "a waiter gives up")
	if got.err == nil {
		t.Fatalf("the waiter has the lock: %s", got.hold.Owner())
	}
	return got.err
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want one that matches %q", err, target)
		}
	}
}

// visit is the time that somebody was inside.
type visit struct {
	contender    int
	enter, leave time.Time
}

// contend lets one goroutine for each of the locks in, turn after turn and all
// at the same time, and checks that no two were inside at one time.
func contend(ctx context.Context, t *testing.T, turns int, locks ...*rlock.RLock) {
	t.Helper()
	counter := 0 // neither atomic nor guarded, but by the locks under test
	visits := make([][]visit, len(locks))
	var wg sync.WaitGroup
	for i, lock := range locks {
		wg.Go(func() {
			for range turns {
				err := lock.Do(ctx, func(context.Context) error {
					v := visit{contender: i, enter: time.Now()}
					n := counter
					runtime.Gosched()
					counter = n + 1
					v.leave = time.Now()
					visits[i] = append(visits[i], v)
					return nil
				})
				if err != nil {
					t.Errorf("contender %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if want := turns * len(locks); counter != want {
		t.Errorf("the counter is %d, want %d: two were inside at one time", counter, want)
	}
	wantTurns(t, slices.Concat(visits...))
}

// wantTurns checks that each visit ended before the next began.
func wantTurns(t *testing.T, visits []visit) {
	t.Helper()
	slices.SortFunc(visits, func(a, b visit) int { return cmp.Compare(a.enter.Sub(b.enter), 0) })
	for i, v := range visits[1:] {
		if before := visits[i]; v.enter.Before(before.leave) {
			t.Errorf("contender %d came in %v before contender %d had left",
				v.contender, before.leave.Sub(v.enter), before.contender)
		}
	}
}
