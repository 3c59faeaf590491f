package latchkey_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestTheBytesInRedisAreRedissons(t *testing.T) {
	for _, test := range []struct{ name, channel string }{
		{"order:42", "redisson_lock__channel:{%sorder:42}"},
		{"naïve ключ", "redisson_lock__channel:{%snaïve ключ}"},
		{"app:{42}:job", "redisson_lock__channel:%sapp:{42}:job"},
		{"a{b", "redisson_lock__channel:%sa{b"},
		{"{}x", "redisson_lock__channel:%s{}x"},
		{"a}b", "redisson_lock__channel:{%sa}b}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.name = r.prefix + test.name // the key, of which this test's locks leave the prefix to the client
			lock := r.client(rlock.Options{KeyPrefix: r.prefix}).NewRLock(test.name)
			channel := fmt.Sprintf(test.channel, r.prefix)
			sub := r.rdb.Subscribe(t.Context(), channel)
			t.Cleanup(func() { _ = sub.Close() })
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}

			outer := mustLock(t.Context(), t, lock)
			r.wantHeld(outer, "1")
			r.wantTTL(20*time.Second, 30*time.Second)
			inner := mustLock(outer.Context(t.Context()), t, lock)
			r.wantHeld(outer, "2")
			mustUnlock(t, inner)
			mustUnlock(t, outer)
			r.wantFree()

			// One message, of the last release.
			if err := r.rdb.Publish(t.Context(), channel, "the end").Err(); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"0", "the end"} {
				if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != want {
					t.Fatalf("received %v, %v, want %q", m, err, want)
				}
			}
		})
	}
}

func TestALockOfAnotherImplementationExcludesAndWakes(t *testing.T) {
	r := newRig(t)
	ctx, lock := t.Context(), r.lock()
	if err := r.rdb.HSet(ctx, r.name, "8743c9c0-0795-4907-87fd-6c719a6b4586:47", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.PExpire(ctx, r.name, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := lock.TryLock(ctx, 0)
	wantIs(t, err, rlock.ErrNotAcquired)
	waiter := begin(func() (*rlock.Hold, error) { return lock.Lock(ctx) })
	r.awaitWaiter(r.name)
	r.del()
	if err := r.rdb.Publish(ctx, "redisson_lock__channel:{"+r.name+"}", "0").Err(); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, awaitHold(t, waiter, woken))
}

func TestAnUncontendedLockAndUnlockAreTwoCommands(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	mustUnlock(t, mustLock(t.Context(), t, lock)) // connects, and shows the server the scripts
	monitor := r.Monitor(t)
	mustUnlock(t, mustLock(t.Context(), t, lock))
	if got := namesOf(monitor.Stop(t)); !slices.Equal(got, []string{"EVALSHA", "EVALSHA"}) {
		t.Errorf("the server was sent %v", got)
	}
}

func TestWaitersThatSleepSendNothing(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	lock := r.lock()
	h := mustLock(t.Context(), t, r.lock(), rlock.WithLease(time.Hour)) // sends no renewals meanwhile
	// Connects, and shows the server the scripts.
	_, err := lock.TryLock(t.Context(), 0)
	wantIs(t, err, rlock.ErrNotAcquired)

	monitor := r.Monitor(t)
	waiters := make([]<-chan outcome, 100)
	for i := range waiters {
		waiters[i] = begin(func() (*rlock.Hold, error) { return lock.Lock(t.Context()) })
	}
	r.awaitWaiter(r.name)
	_, err = lock.TryLock(t.Context(), time.Second) // one among the many, and the time that they sleep
	wantIs(t, err, rlock.ErrNotAcquired)
	// An attempt, the subscription, and the attempt that decides after it.
	got := namesOf(monitor.Stop(t), "EVALSHA", "EVAL", "SUBSCRIBE", "PING")
	if want := []string{"EVALSHA", "SUBSCRIBE", "EVALSHA"}; !slices.Equal(got, want) {
		t.Errorf("101 waiters sent %v, want %v", got, want)
	}

	mustUnlock(t, h)
	unlockAll(t, waiters)
}

func TestManyNamesShareOneSubscriptionConnection(t *testing.T) {
	r := newRigAlone(t, redistest.Config{})
	holder, c := r.client(rlock.Options{KeyPrefix: r.prefix}), r.client(rlock.Options{KeyPrefix: r.prefix})
	holds, waiters := make([]*rlock.Hold, 50), make([]<-chan outcome, 50)
	for i := range holds {
		name := strconv.Itoa(i)
		holds[i] = mustLock(t.Context(), t, holder.NewRLock(name))
		waiters[i] = begin(func() (*rlock.Hold, error) { return c.NewRLock(name).Lock(t.Context()) })
	}
	for i := range holds {
		r.awaitWaiter(r.prefix + strconv.Itoa(i))
	}
	subscribed := 0
	for _, conn := range r.Connections(t) {
		if conn.Subscriptions > 0 {
			subscribed++
		}
	}
	if subscribed != 1 {
		t.Errorf("%d connections carry the subscriptions to 50 names", subscribed)
	}
	for i, h := range holds {
		mustUnlock(t, h)
		mustUnlock(t, awaitHold(t, waiters[i], woken))
	}
}

// namesOf returns the commands that clients sent, in order; with names given,
// those among them.
func namesOf(calls []redistest.Call, names ...string) []string {
	var got []string
	for _, call := range calls {
		if !call.FromScript() && (len(names) == 0 || slices.Contains(names, call.Name())) {
			got = append(got, call.Name())
		}
	}
	return got
}
