package rlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The defaults of rlock, and a name.
const (
	lease      = 30 * time.Second
	renewEvery = 10 * time.Second
	job        = "job"
)

var errDown = errors.New("somebody pulled the plug")

// fakeTB is a test whose failures are what a test of ours looks at.
type fakeTB struct {
	mu       sync.Mutex
	errors   []string
	fatals   []string
	cleanups []func()
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.mu.Lock()
	f.fatals = append(f.fatals, fmt.Sprintf(format, args...))
	f.mu.Unlock()
	runtime.Goexit()
}

func (f *fakeTB) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }

// end does what the end of a test does.
func (f *fakeTB) end() {
	for _, cleanup := range slices.Backward(f.cleanups) {
		cleanup()
	}
	f.cleanups = nil
}

// during returns the errors and the fatal failures of the fake test while body
// ran, and forgets them.
func (f *fakeTB) during(body func()) (errs, fatals []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body()
	}()
	<-done
	f.mu.Lock()
	defer f.mu.Unlock()
	errs, fatals = f.errors, f.fatals
	f.errors, f.fatals = nil, nil
	return errs, fatals
}

// fakeKit is a Kit of a fake test, which ends with the real one.
type fakeKit struct {
	*rlocktest.Kit

	t    *testing.T
	fake *fakeTB
}

func newFakeKit(t *testing.T) fakeKit {
	t.Helper()
	k := fakeKit{t: t, fake: &fakeTB{}}
	t.Cleanup(k.fake.end)
	k.Kit = rlocktest.New(k.fake, rlock.Options{})
	return k
}

// passes checks that body is no failure of the fake test.
func (k fakeKit) passes(body func()) {
	k.t.Helper()
	if errs, fatals := k.fake.during(body); len(errs)+len(fatals) > 0 {
		k.t.Errorf("the test fails: %q %q", errs, fatals)
	}
}

// errs checks that body is one error of the fake test, with all of these words.
func (k fakeKit) errs(body func(), words ...string) {
	k.t.Helper()
	errs, fatals := k.fake.during(body)
	if len(errs) != 1 || len(fatals) > 0 || !hasAll(errs[0], words) {
		k.t.Errorf("errors %q, fatal %q; want one error with %q", errs, fatals, words)
	}
}

// ends checks that body ends the fake test, with all of these words.
func (k fakeKit) ends(body func(), words ...string) {
	k.t.Helper()
	errs, fatals := k.fake.during(body)
	if len(fatals) != 1 || len(errs) > 0 || !hasAll(fatals[0], words) {
		k.t.Errorf("errors %q, fatal %q; want one fatal failure with %q", errs, fatals, words)
	}
}

func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// rig is a test in a bubble and a Kit of default options.
type rig struct {
	*testing.T

	kit *rlocktest.Kit
}

// inBubble runs body in a bubble.
func inBubble(t *testing.T, body func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(rig{t, rlocktest.New(t, rlock.Options{})}) })
}

// lock acquires at once, and fails the test if it cannot.
func lock(t *testing.T, kit *rlocktest.Kit, name string, opts ...rlock.LockOption) *rlock.Hold {
	t.Helper()
	h, err := kit.Client().NewRLock(name).TryLock(t.Context(), 0, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func unlock(t *testing.T, h *rlock.Hold) {
	t.Helper()
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// outcome is how a Lock in a goroutine of its own ended.
type outcome struct {
	hold *rlock.Hold
	err  error
	at   time.Time
}

// waiting starts a Lock in a bubble, and returns when it waits.
func waiting(t *testing.T, kit *rlocktest.Kit) <-chan outcome {
	t.Helper()
	done := make(chan outcome, 1)
	go func() {
		// Bounded, so that it tries again what may pass by itself.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		h, err := kit.Client().NewRLock(job).Lock(ctx)
		done <- outcome{h, err, time.Now()}
	}()
	synctest.Wait()
	if len(done) > 0 {
		t.Fatalf("Lock does not wait: %v", (<-done).err)
	}
	return done
}

// pass lets time go by in a bubble, and what is due then happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// is checks that an error matches one and none of the other ways in which a
// lock fails.
func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want one that matches %v", err, want)
	}
	for _, other := range []error{
		rlock.ErrNotAcquired, rlock.ErrNotHeld, rlock.ErrLost, rlock.ErrClosed,
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded,
	} {
		if errors.Is(err, other) && !errors.Is(want, other) {
			t.Errorf("error %v matches %v as well as %v", err, other, want)
		}
	}
}

// counts checks Acquired and Released.
func counts(t *testing.T, kit *rlocktest.Kit, name string, acquired, released int) {
	t.Helper()
	if a, r := kit.Acquired(name), kit.Released(name); a != acquired || r != released {
		t.Errorf("lock %q: acquired %d times, released %d times; want %d and %d", name, a, r, acquired, released)
	}
}
