package script_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/wire"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	mine   = "11111111-1111-1111-1111-111111111111:1"
	theirs = "22222222-2222-2222-2222-222222222222:1"
	ghost1 = "11111111-1111-1111-1111-111111111111:2"
	ghost2 = "11111111-1111-1111-1111-111111111111:3"
	noTTL  = -time.Millisecond // as PTTL says it
)

// rig is a key on a server, and what is published on its channel.
type rig struct {
	rdb     *redis.Client
	key     string
	channel string
}

// newRig takes a key of its own on the server that all tests share.
func newRig(t *testing.T) *rig {
	t.Helper()
	srv := redistest.Shared(t)
	r := rigOn(srv.Client(t), redistest.Prefix(t)+"lock")
	t.Cleanup(func() { r.rdb.Del(context.WithoutCancel(t.Context()), r.key) })
	return r
}

func rigOn(rdb *redis.Client, key string) *rig {
	return &rig{rdb: rdb, key: key, channel: wire.Channel(key)}
}

// state is what a key holds. No fields means that there is no key.
type state struct {
	fields map[string]string
	ttl    time.Duration // noTTL for a key without one
}

// fields makes a hash from pairs of field and value.
func fields(pairs ...string) map[string]string {
	f := make(map[string]string)
	for pair := range slices.Chunk(pairs, 2) {
		f[pair[0]] = pair[1]
	}
	return f
}

// set puts the key into a state and returns the time before that.
func (r *rig) set(t *testing.T, s state) time.Time {
	t.Helper()
	start := time.Now()
	ctx := t.Context()
	pipe := r.rdb.TxPipeline()
	pipe.Del(ctx, r.key)
	if len(s.fields) > 0 {
		pipe.HSet(ctx, r.key, s.fields)
		if s.ttl != noTTL {
			pipe.PExpire(ctx, r.key, s.ttl)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return start
}

// check compares the key with a state whose TTL was set after start.
func (r *rig) check(t *testing.T, want state, start time.Time) {
	t.Helper()
	ctx := t.Context()
	pipe := r.rdb.Pipeline() // EXEC would be refused by a full server
	got := pipe.HGetAll(ctx, r.key)
	ttl := pipe.PTTL(ctx, r.key)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.Val(), want.fields) {
		t.Errorf("the key holds %v, want %v", got.Val(), want.fields)
		return
	}
	if len(want.fields) > 0 {
		checkTTL(t, ttl.Val(), want.ttl, start)
	}
}

// checkTTL checks a TTL that was set to want after start: it can only have
// become shorter by what has passed since.
func checkTTL(t *testing.T, got, want time.Duration, start time.Time) {
	t.Helper()
	if got == -1 { // go-redis does not scale it
		got = noTTL
	}
	lowest := want - time.Since(start) - time.Millisecond
	if want == noTTL {
		lowest = noTTL
	}
	if got < lowest || got > want {
		t.Errorf("TTL %v, want %v, or less by what has passed since: %v", got, want, lowest)
	}
}

// now returns the server's clock in ms.
func (r *rig) now(t *testing.T) int64 {
	t.Helper()
	now, err := r.rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMilli()
}

// checkNow checks that a reply carries the server's clock: not before what it
// was before the call.
func (r *rig) checkNow(t *testing.T, before, now int64) {
	t.Helper()
	if after := r.now(t); now < before || now > after {
		t.Errorf("now = %d, want the server's clock: %d to %d", now, before, after)
	}
}

// published runs fn and returns what was published on the channel meanwhile.
func (r *rig) published(t *testing.T, fn func()) []string {
	t.Helper()
	return received(t, r.rdb.Subscribe(t.Context(), r.channel), fn, func() error {
		return r.rdb.Publish(t.Context(), r.channel, endMark).Err()
	})
}

const endMark = "end of the test's messages"

// received returns what a subscription receives while fn runs. mark publishes
// endMark: what was published before it arrives before it.
func received(t *testing.T, sub *redis.PubSub, fn func(), mark func() error) []string {
	t.Helper()
	defer sub.Close() //nolint:errcheck // Only read from.
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	fn()
	if err := mark(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == endMark {
			return got
		}
		got = append(got, m.Payload)
	}
}

// count is the hold count that a number of holds has in Redis.
func count(n int) string { return strconv.Itoa(n) }
