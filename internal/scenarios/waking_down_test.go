//go:build scenarios

package scenarios_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// within checks that something took as long as it was bounded to, as near as
// the cases say.
func within(t *testing.T, what string, took, bound time.Duration) {
	t.Helper()
	const near = 200 * time.Millisecond
	t.Logf("%s returned after %v", what, took)
	if took < bound-near || took > bound+near {
		t.Errorf("%s returned after %v, want %v and at most %v more or less", what, took, bound, near)
	}
}

// timed returns how long a Lock that has to fail took, and its error.
func timed(t *testing.T, lock func() (*rlock.Hold, error)) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	h, err := lock()
	took := time.Since(began)
	if err == nil {
		t.Fatalf("%s has the lock", h.Owner())
	}
	if h != nil {
		t.Errorf("a hold came with the error %v", err)
	}
	return took, err
}

// Redis is down, or hangs; both end, and the same objects go on then.
func TestB118ABoundHoldsWhileRedisIsDown(t *testing.T) {
	const bound = 500 * time.Millisecond
	faults := map[string]struct{ begin, end func(*rig) error }{
		"killed": {
			begin: func(r *rig) error { return r.Kill() },
			end:   func(r *rig) error { return r.Restart(r.t.Context()) },
		},
		"hung": {
			begin: func(r *rig) error { return r.Pause() },
			end:   func(r *rig) error { return r.Resume() },
		},
	}
	for name, fault := range faults {
		for warm, before := range map[string]int{"new client": 0, "used client": 1} {
			t.Run(name+", "+warm, func(t *testing.T) {
				t.Parallel()
				r := newRigAlone(t, redistest.Config{})
				lock := r.lock(rlock.Options{})
				for range before {
					r.mustUnlock(r.mustLock(lock))
				}
				if err := fault.begin(r); err != nil {
					t.Fatal(err)
				}
				took, err := timed(t, func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), bound) })
				within(t, "TryLock", took, bound)
				wantNot(t, err, rlock.ErrNotAcquired, context.DeadlineExceeded)

				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				took, err = timed(t, func() (*rlock.Hold, error) { return lock.Lock(ctx) })
				within(t, "Lock", took, bound)
				wantIs(t, err, context.DeadlineExceeded)
				wantNot(t, err, rlock.ErrNotAcquired)

				if err := fault.end(r); err != nil {
					t.Fatal(err)
				}
				r.mustUnlock(r.mustLock(lock))
			})
		}
	}
}

// The subscription is never confirmed, while Redis answers everything else.
func TestB118ABoundHoldsWhileSubscribingHangs(t *testing.T) {
	const bound, tries = 300 * time.Millisecond, 3
	r := newRig(t)
	p := r.proxy()
	p.On(faultproxy.Cmd("SUBSCRIBE")).DropRequest()
	h := r.mustLock(r.lock(rlock.Options{}))
	lock := r.lock(rlock.Options{}, through(p))
	for range tries {
		took, err := timed(t, func() (*rlock.Hold, error) { return lock.TryLock(t.Context(), bound) })
		within(t, "TryLock", took, bound)
		wantIs(t, err, rlock.ErrNotAcquired)
	}
	r.mustUnlock(h)
}

// The client below retries three times, a second each, and looks at no context.
func TestB124RetriesBelowDoNotStretchTheBound(t *testing.T) {
	const bound = 500 * time.Millisecond
	r := newRig(t)
	p := r.proxy()
	lock := r.lock(rlock.Options{}, through(p), func(o *redis.Options) {
		o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = time.Second, 3, false
	})
	r.mustUnlock(r.mustLock(lock))
	p.Blackhole()
	took, err := timed(t, func() (*rlock.Hold, error) { return lock.TryLock(context.Background(), bound) })
	within(t, "TryLock", took, bound)
	wantNot(t, err, rlock.ErrNotAcquired, context.DeadlineExceeded)
	p.Heal()
	p.KillConnections()
	r.mustUnlock(r.mustLock(lock))
}

func TestB128UnlockHasABoundOfItsOwn(t *testing.T) {
	const bound = time.Second
	r := newRig(t)
	p := r.proxy()
	lock := r.lock(rlock.Options{UnlockTimeout: bound}, through(p), func(o *redis.Options) { o.ReadTimeout = time.Minute })
	h := r.mustLock(lock)
	p.Blackhole()
	r.leave(h)
	began := time.Now()
	err := h.Unlock(context.Background())
	within(t, "Unlock", time.Since(began), bound)
	wantText(t, err, "outcome unknown")
	wantNot(t, err, rlock.ErrNotHeld, rlock.ErrLost, context.DeadlineExceeded)
	p.Heal()
	p.KillConnections()
	if err := h.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock again: %v", err)
	}
	redistest.Eventually(t, stuck, func() bool { return len(r.fields()) == 0 }, "the lock is free")
}
