package script_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
)

// fillUp makes a server refuse every command that may need memory.
func fillUp(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for option, value := range map[string]string{"maxmemory-policy": "noeviction", "maxmemory": "1"} {
		if err := rdb.ConfigSet(t.Context(), option, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	err := rdb.Set(t.Context(), "any", "x", 0).Err()
	if !redis.IsOOMError(err) {
		t.Fatalf("SET on a full server: %v, want OOM", err)
	}
}

// TestFullServer: whoever holds a lock can re-enter, renew and release it on a
// server without memory; nobody can acquire a new one, and that leaves no key.
func TestFullServer(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	r := rigOn(srv.Client(t), "lock")
	start := r.set(t, state{fields(mine, "1"), shorter})
	fillUp(t, r.rdb)
	ctx := t.Context()

	inner, err := script.Acquire{Key: r.key, Owner: mine, Depth: 2, Lease: lease}.Send(ctx, r.rdb)
	if err != nil || inner.Code != script.Granted {
		t.Errorf("re-entry: %+v, %v", inner, err)
	}
	r.check(t, state{fields(mine, "2"), lease}, start)
	codes, _, err := script.Renew(ctx, r.rdb, []script.Renewal{{Key: r.key, Owner: mine, Lease: longer}})
	if err != nil || codes[0] != script.Renewed {
		t.Errorf("renewal: %v, %v", codes, err)
	}
	if reply := r.release(t, 2); reply.Code != script.Lowered {
		t.Errorf("release of the inner hold: %+v", reply)
	}
	r.check(t, state{fields(mine, "1"), longer}, start)
	if reply := r.release(t, 1); reply.Code != script.Released {
		t.Errorf("release: %+v", reply)
	}
	r.checkRefused(t)
}

// checkRefused checks that a fresh acquire on a full server is OOM, by digest
// and by text, and leaves no key.
func (r *rig) checkRefused(t *testing.T) {
	t.Helper()
	request := script.Acquire{Key: r.key, Owner: theirs, Depth: 1, Lease: lease}
	for _, prepare := range []func(context.Context) error{
		func(ctx context.Context) error { return r.rdb.ScriptFlush(ctx).Err() },
		func(ctx context.Context) error { return r.rdb.ScriptLoad(ctx, script.AcquireScript.Source()).Err() },
	} {
		if err := prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := request.Send(t.Context(), r.rdb)
		if !redis.IsOOMError(err) || !script.Answered(err) || script.Passing(err) {
			t.Errorf("acquire: %v, want OOM, answered, not passing", err)
		}
		if n := r.rdb.Exists(t.Context(), r.key).Val(); n != 0 {
			t.Error("a refused acquire left a key")
		}
	}
}

// TestFullServerHeld: who finds the lock held learns that, and not that memory
// is short.
func TestFullServerHeld(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	r := rigOn(srv.Client(t), "lock")
	start := r.set(t, state{fields(theirs, "1"), longer})
	fillUp(t, r.rdb)
	reply, err := script.Acquire{Key: r.key, Owner: mine, Depth: 1, Lease: lease}.Send(t.Context(), r.rdb)
	if err != nil || reply.Code != script.Held {
		t.Errorf("%+v, %v; want held", reply, err)
	}
	r.check(t, state{fields(theirs, "1"), longer}, start)
}
