package rlocktest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

// failures are the kinds of failure that pass by themselves.
var failures = map[string]error{
	"away":  errDown,
	"reply": rlocktest.Reply("LOADING Redis is loading the dataset in memory"),
}

// eachFailure runs body for each kind, in a bubble.
func eachFailure(t *testing.T, body func(r rig, failure error)) {
	t.Helper()
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) { body(r, failure) })
		})
	}
}

// TestFailEachMethod: every method of the client fails, with what Fail was
// given, and nothing is executed.
func TestFailEachMethod(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		l := kit.Client().NewRLock(job)
		fixed := lock(t, kit, "fixed", rlock.WithLease(time.Hour))
		for range 2 { // the second time with connections that were used before
			kit.Fail(failure)
			_, err := l.TryLock(t.Context(), 0)
			is(t, err, failure)
			_, err = l.Lock(t.Context())
			is(t, err, failure)
			is(t, l.Do(t.Context(), func(context.Context) error { return nil }), failure)
			_, err = l.Info(t.Context())
			is(t, err, failure)
			_, err = l.ForceUnlock(t.Context())
			is(t, err, failure)
			is(t, fixed.Renew(t.Context(), 2*time.Hour), failure)
			kit.AssertFree(job)
			counts(t, kit, job, 0, 0)

			kit.Fail(nil)
			if _, err := l.Info(t.Context()); err != nil {
				t.Errorf("after Fail(nil): %v", err)
			}
			if err := fixed.Renew(t.Context(), time.Hour); err != nil {
				t.Errorf("after Fail(nil): %v", err)
			}
		}
		unlock(t, lock(t, kit, job))
		counts(t, kit, job, 1, 1)
	})
}

// TestFailWithinTheWait: a bounded wait outlives a failure that passes, and
// otherwise ends with it.
func TestFailWithinTheWait(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		kit.Fail(failure)
		start := time.Now()
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), time.Minute)
		is(t, err, failure)
		if spent := time.Since(start); spent != time.Minute {
			t.Errorf("the wait of a minute took %v", spent)
		}
		time.AfterFunc(30*time.Second, func() { kit.Fail(nil) })
		h, err := kit.Client().NewRLock(job).TryLock(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, h)
		counts(t, kit, job, 1, 1)
	})
}

// TestReplies: go-redis knows a reply by its type and by its text.
func TestReplies(t *testing.T) {
	knows := map[string]func(error) bool{
		"LOADING Redis is loading the dataset in memory":         redis.IsLoadingError,
		"READONLY You can't write against a read only replica.":  redis.IsReadOnlyError,
		"CLUSTERDOWN The cluster is down":                        redis.IsClusterDownError,
		"ERR max number of clients reached":                      redis.IsMaxClientsError,
		"NOPERM no permissions to run the 'evalsha' command":     redis.IsPermissionError,
		"BUSY Redis is busy running a script.":                   nil,
		"WRONGTYPE Operation against a key of the wrong kind %d": nil,
	}
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		for text, known := range knows {
			kit.Fail(rlocktest.Reply(text))
			_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
			is(t, err, rlocktest.Reply(text))
			reply, ok := errors.AsType[redis.Error](err)
			if !ok || reply.Error() != text || !redis.HasErrorPrefix(err, strings.TrimPrefix(text, "ERR ")) {
				t.Errorf("%v is not the reply %q", err, text)
			}
			if known != nil && !known(err) {
				t.Errorf("go-redis does not know the type of %v", err)
			}
			if errors.Is(err, rlocktest.Reply("another")) {
				t.Errorf("%v matches another reply", err)
			}
		}
	})
}

// TestFailForGood: a reply that does not pass by itself is returned at once.
func TestFailForGood(t *testing.T) {
	inBubble(t, func(r rig) {
		t, kit := r.T, r.kit
		refusal := rlocktest.Reply("NOPERM no permissions to run the 'evalsha' command")
		kit.Fail(refusal)
		start := time.Now()
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), time.Hour)
		is(t, err, refusal)
		if spent := time.Since(start); spent != 0 {
			t.Errorf("NOPERM is returned after %v, want at once", spent)
		}
	})
}

// TestFailingRenewals: a hold outlives failures shorter than its lease, and is
// lost when they last as long.
func TestFailingRenewals(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		h := lock(t, kit, job)
		kit.Fail(failure)
		pass(lease - time.Second)
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
		kit.Fail(nil)
		pass(10 * time.Minute)
		if err := h.Err(); err != nil {
			t.Fatalf("renewals went on, and yet: %v", err)
		}

		valid := h.ValidUntil()
		kit.Fail(failure)
		<-h.Lost()
		if !time.Now().Equal(valid) {
			t.Errorf("lost at %v, want %v", time.Now(), valid)
		}
		kit.AssertFree(job)
		is(t, h.Err(), rlock.ErrLost)
		counts(t, kit, job, 1, 0)
	})
}

// TestFailingUnlock: the outcome is unknown, and the release arrives later.
func TestFailingUnlock(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		h := lock(t, kit, job)
		kit.Fail(failure)
		start := time.Now()
		err := h.Unlock(t.Context())
		is(t, err, failure)
		if !strings.Contains(err.Error(), "outcome unknown") || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v, want an unknown outcome after 5s", time.Since(start), err)
		}
		kit.AssertHeld(job)
		counts(t, kit, job, 1, 0)
		kit.Fail(nil)
		pass(2 * time.Second)
		kit.AssertFree(job)
		kit.AssertReleased(job)
	})
}

// TestFailingWaiter: a waiter outlives the failure. While Redis is out of
// reach its subscription is gone and no message arrives.
func TestFailingWaiter(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		other := kit.Occupy(job)
		done := waiting(t, kit)
		subscribers := func() int { return kit.Subscribers(wire.Channel(job)) }
		if n := subscribers(); n != 1 {
			t.Fatalf("%d subscribers, want 1", n)
		}
		kit.Fail(failure)
		synctest.Wait()
		want := 1
		if errors.Is(failure, errDown) {
			want = 0
		}
		if n := subscribers(); n != want {
			t.Errorf("%d subscribers while it fails, want %d", n, want)
		}
		other.Release()
		pass(10 * time.Second)
		if len(done) > 0 {
			t.Fatalf("a waiter returns while Redis fails: %v", (<-done).err)
		}
		kit.Fail(nil)
		healed := time.Now()
		got := <-done
		if got.err != nil || got.at.Sub(healed) > time.Second {
			t.Fatalf("%v after %v, want a hold within a second", got.err, got.at.Sub(healed))
		}
		unlock(t, got.hold)
	})
}

// TestSubscribingWhileFailing: error replies do not keep a waiter from
// subscribing, and Redis out of reach does.
func TestSubscribingWhileFailing(t *testing.T) {
	eachFailure(t, func(r rig, failure error) {
		t, kit := r.T, r.kit
		kit.Fail(failure)
		done := waiting(t, kit)
		pass(time.Minute)
		want := 1
		if errors.Is(failure, errDown) {
			want = 0
		}
		if n := kit.Subscribers(wire.Channel(job)); n != want {
			t.Errorf("%d subscribers, want %d", n, want)
		}
		kit.Fail(nil)
		got := <-done
		if got.err != nil {
			t.Fatal(got.err)
		}
		unlock(t, got.hold)
	})
}

// TestFailOutsideBubble: nothing of a failed attempt is left that the end of
// the test would have to wait for.
func TestFailOutsideBubble(t *testing.T) {
	fake := &fakeTB{}
	kit := rlocktest.New(fake, rlock.Options{UnlockTimeout: time.Hour})
	for _, failure := range failures {
		kit.Fail(failure)
		_, err := kit.Client().NewRLock(job).TryLock(t.Context(), 0)
		is(t, err, failure)
	}
	// Close waits for what is to be swept for UnlockTimeout: the test would time out.
	fake.end()
}

// TestFailPipelines: commands that are sent together fail together. What
// prepares a connection does not fail.
func TestFailPipelines(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	command := func(name string) *redis.Cmd { return redis.NewCmd(t.Context(), name) }
	one, two := command("hello"), command("evalsha")
	if sent, err := kit.Pipeline(t.Context(), one, two); !sent || err != nil {
		t.Errorf("sent %v, %v", sent, err)
	}
	kit.Fail(errDown)
	if sent, err := kit.Pipeline(t.Context(), one, two); sent || !errors.Is(err, errDown) {
		t.Errorf("while it fails: sent %v, %v", sent, err)
	}
	if !errors.Is(one.Err(), errDown) || !errors.Is(two.Err(), errDown) {
		t.Errorf("the commands have %v and %v", one.Err(), two.Err())
	}
	if sent, err := kit.Pipeline(t.Context(), command("hello"), command("client")); !sent || err != nil {
		t.Errorf("a handshake while it fails: sent %v, %v", sent, err)
	}
}

// TestFailBetweenDialAndSubscribe: a connection that was made before Redis went
// out of reach carries no subscription after it.
func TestFailBetweenDialAndSubscribe(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	c, err := kit.Dial()
	if err != nil {
		t.Fatal(err)
	}
	kit.Fail(errDown)
	if _, err := c.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SUBSCRIBE while Redis is out of reach: %v", err)
	}
	if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection lives on: %v", err)
	}
	if _, err := kit.Dial(); !errors.Is(err, errDown) {
		t.Errorf("a new connection: %v", err)
	}
}
