package watchdog_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

// store stands for a server with keys that expire, such as Redis.
type store struct {
	mu   sync.Mutex
	ends map[string]time.Time
}

func (s *store) set(key string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[key] = time.Now().Add(ttl)
}

func (s *store) del(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, key)
}

// expire gives all keys that are still there a new time to live and reports which: a pipeline of EXPIRE commands.
func (s *store) expire(_ context.Context, ttl time.Duration, keys ...string) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make([]bool, len(keys))
	now := time.Now()
	for i, key := range keys {
		if there[i] = now.Before(s.ends[key]); there[i] {
			s.ends[key] = now.Add(ttl)
		}
	}
	return there, nil
}

// Presence: each user who is online has a key that this process keeps alive. When the process dies, its keys expire.
func Example_presence() {
	const ttl = 10 * time.Second
	db := &store{ends: map[string]time.Time{}}

	renew := func(ctx context.Context, _ string, keys []string) []watchdog.Outcome {
		there, err := db.expire(ctx, ttl, keys...)
		if err != nil {
			return nil // unknown: the watchdog tries again
		}
		outcomes := make([]watchdog.Outcome, len(keys))
		for i := range keys {
			outcomes[i] = watchdog.Gone
			if there[i] {
				outcomes[i] = watchdog.Renewed
			}
		}
		return outcomes
	}
	told := make(chan string)
	presence, err := watchdog.New(renew, watchdog.Options[string]{
		RenewalsPerLease: 50, // leave this out: it is here so that the example need not run for seconds
		OnLost:           func(key string, err error) { go func() { told <- fmt.Sprintf("%s: %v", key, err) }() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	online := map[string]*watchdog.Lease[string]{}
	for _, user := range []string{"online:ada", "online:bob"} {
		sent := time.Now() // before the command: the server counts from later
		db.set(user, ttl)
		online[user] = presence.Keep(user, "db0", ttl, sent)
	}

	db.del("online:bob") // somebody else logs bob out
	fmt.Println(<-told)
	fmt.Println("ada:", online["online:ada"].Err())

	online["online:ada"].Stop() // ada leaves: no renewal starts after this
	db.del("online:ada")
	_ = presence.Close()
	fmt.Println("idle:", presence.Wait(context.Background()))
	// Output:
	// online:bob: watchdog: the lease is gone
	// ada: <nil>
	// idle: <nil>
}
