package rlocktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// TestAssertions: each passes in its state of a lock and fails in all others,
// Redis failing or not.
func TestAssertions(t *testing.T) {
	const (
		free = 1 << iota
		held
		released
	)
	states := []struct {
		name   string
		reach  func(t *testing.T, k fakeKit)
		passes int
		words  map[int]string // of those that fail
	}{
		{
			"never acquired", func(*testing.T, fakeKit) {}, free,
			map[int]string{held: "is free, want it held by Client", released: "never acquired"},
		},
		{
			"held", func(t *testing.T, k fakeKit) { t.Helper(); lock(t, k.Kit, job) }, held,
			map[int]string{
				free:     "is held by Client, want it free",
				released: "still held by Client (acquired 1 times, released 0 times)",
			},
		},
		{
			"released", func(t *testing.T, k fakeKit) { t.Helper(); unlock(t, lock(t, k.Kit, job)) }, free | released,
			map[int]string{held: "is free, want it held by Client"},
		},
		{
			"occupied", func(_ *testing.T, k fakeKit) { k.Occupy(job) }, 0,
			map[int]string{
				free: "is held by another owner, want it free", held: "is held by another owner, want it held by Client",
				released: "never acquired",
			},
		},
		{
			"released and occupied", func(t *testing.T, k fakeKit) {
				t.Helper()
				unlock(t, lock(t, k.Kit, job))
				k.Occupy(job)
			}, released,
			map[int]string{free: "is held by another owner", held: "is held by another owner"},
		},
		{
			"lost", func(t *testing.T, k fakeKit) {
				t.Helper()
				lock(t, k.Kit, job)
				k.Lose(job)
			}, free,
			map[int]string{held: "is free", released: "acquired 1 times and released 0 times: it was lost"},
		},
		{
			"run out, and released the next time", func(t *testing.T, k fakeKit) {
				t.Helper()
				lock(t, k.Kit, job, rlock.WithLease(time.Second))
				pass(time.Second)
				unlock(t, lock(t, k.Kit, job))
			}, free,
			map[int]string{held: "is free", released: "acquired 2 times and released 1 times"},
		},
		{
			"released, and held again", func(t *testing.T, k fakeKit) {
				t.Helper()
				unlock(t, lock(t, k.Kit, job))
				lock(t, k.Kit, job)
			}, held,
			map[int]string{free: "is held by Client", released: "still held by Client (acquired 2 times, released 1 times)"},
		},
		{
			"held while Redis fails", func(t *testing.T, k fakeKit) {
				t.Helper()
				lock(t, k.Kit, job)
				k.Fail(errDown)
			}, held,
			map[int]string{free: "is held by Client", released: "still held by Client"},
		},
	}
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newFakeKit(t)
				s.reach(t, k)
				for assertion, call := range map[int]func(string){
					free: k.AssertFree, held: k.AssertHeld, released: k.AssertReleased,
				} {
					if s.passes&assertion != 0 {
						k.passes(func() { call(job) })
					} else {
						k.errs(func() { call(job) }, `"job"`, s.words[assertion])
					}
				}
			})
		})
	}
}

// TestAssertionsAfterTheEnd: what cannot be told ends the test.
func TestAssertionsAfterTheEnd(t *testing.T) {
	k := newFakeKit(t)
	k.ends(func() { k.AssertFree("") }, "name is empty")
	k.fake.end()
	for _, call := range []func(string){k.AssertFree, k.AssertHeld, k.AssertReleased} {
		k.ends(func() { call(job) }, "client closed")
	}
}
