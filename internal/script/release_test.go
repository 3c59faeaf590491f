package script_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

var releaseCases = []struct {
	name   string
	before state
	depth  int
	code   script.ReleaseCode
	after  state
}{
	{name: "the last hold", depth: 1, before: state{fields(mine, "1"), longer}, code: script.Released},
	{name: "the last hold, no TTL", depth: 1, before: state{fields(mine, "1"), noTTL}, code: script.Released},
	{name: "the last hold, a count left high", depth: 1, before: state{fields(mine, "7"), longer}, code: script.Released},
	{name: "the last hold, no number", depth: 1, before: state{fields(mine, "many"), longer}, code: script.Released},
	{
		// The key is the lock: fields that are no owners do not keep it.
		name: "the last hold, a field beside", depth: 1, before: state{fields(mine, "1", "mode", "x"), longer},
		code: script.Released,
	},
	{name: "free", depth: 1, code: script.Gone},
	{name: "free, an inner hold", depth: 3, code: script.Gone},
	{
		name: "held by another", depth: 1, before: state{fields(theirs, "1"), longer},
		code: script.Gone, after: state{fields(theirs, "1"), longer},
	},
	{
		name: "held by another, an inner hold", depth: 2, before: state{fields(theirs, "2"), longer},
		code: script.Gone, after: state{fields(theirs, "2"), longer},
	},
	{
		name: "an inner hold", depth: 3, before: state{fields(mine, "3"), longer},
		code: script.Lowered, after: state{fields(mine, "2"), longer},
	},
	{
		name: "a copy after an inner hold", depth: 3, before: state{fields(mine, "2"), longer},
		code: script.Lowered, after: state{fields(mine, "2"), longer},
	},
	{
		name: "a late copy, the count is lower", depth: 3, before: state{fields(mine, "1"), shorter},
		code: script.Lowered, after: state{fields(mine, "1"), shorter},
	},
	{
		name: "a count left high", depth: 2, before: state{fields(mine, "9"), shorter},
		code: script.Lowered, after: state{fields(mine, "1"), shorter},
	},
	{
		name: "no number", depth: 3, before: state{fields(mine, "many"), shorter},
		code: script.Lowered, after: state{fields(mine, "2"), shorter},
	},
	{
		name: "an inner hold, no TTL", depth: 2, before: state{fields(mine, "2"), noTTL},
		code: script.Lowered, after: state{fields(mine, "1"), noTTL},
	},
	{
		name: "an inner hold, a field beside", depth: 2, before: state{fields(mine, "2", theirs, "1"), longer},
		code: script.Lowered, after: state{fields(mine, "1", theirs, "1"), longer},
	},
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for _, c := range releaseCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			start := r.set(t, c.before)
			now := r.now(t)
			var reply script.ReleaseReply
			messages := r.published(t, func() { reply = r.release(t, c.depth) })
			if reply.Code != c.code || reply.Refusal != "" {
				t.Errorf("%+v, want code %d and no refusal", reply, c.code)
			}
			r.checkNow(t, now, reply.Now)
			r.check(t, c.after, start)
			var want []string
			if c.code == script.Released {
				want = []string{"0"}
			}
			if !slices.Equal(messages, want) || reply.Receivers != int64(len(want)) {
				t.Errorf("published %q to %d, want %q", messages, reply.Receivers, want)
			}
		})
	}
}

func (r *rig) toRelease(depth int) script.Release {
	return script.Release{Key: r.key, Owner: mine, Depth: depth, Channel: r.channel, Publish: "PUBLISH"}
}

func (r *rig) release(t *testing.T, depth int) script.ReleaseReply {
	t.Helper()
	reply, err := r.toRelease(depth).Send(t.Context(), r.rdb)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestReleaseAllHolds closes holds one by one, each with a copy right behind it,
// and at the end a copy of each once more: the lock is free and stays so.
func TestReleaseAllHolds(t *testing.T) {
	t.Parallel()
	const holds = 4
	r := newRig(t)
	start := r.set(t, state{fields(mine, count(holds)), longer})
	for depth := holds; depth > 1; depth-- {
		for range 2 {
			if reply := r.release(t, depth); reply.Code != script.Lowered {
				t.Fatalf("depth %d: %+v", depth, reply)
			}
			r.check(t, state{fields(mine, count(depth-1)), longer}, start)
		}
	}
	if reply := r.release(t, 1); reply.Code != script.Released {
		t.Fatalf("%+v", reply)
	}
	for depth := holds; depth > 0; depth-- {
		if reply := r.release(t, depth); reply.Code != script.Gone {
			t.Errorf("a copy of depth %d: %+v", depth, reply)
		}
	}
	r.check(t, state{}, start)
}

func TestReleaseWrongType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.rdb.Set(t.Context(), r.key, "data", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{1, 2} {
		_, err := r.toRelease(depth).Send(t.Context(), r.rdb)
		if !script.WrongType(err) {
			t.Errorf("depth %d: %v, want WRONGTYPE", depth, err)
		}
	}
	if got := r.rdb.Get(t.Context(), r.key).Val(); got != "data" {
		t.Errorf("the key holds %q", got)
	}
}

// TestReleasePublishes: the command that wakes is an argument. SPUBLISH reaches
// shard channels, and one that the server does not know does not undo the release.
func TestReleasePublishes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := state{fields(mine, "1"), longer}
	request := r.toRelease(1)

	r.set(t, held)
	request.Publish = "SPUBLISH"
	got := received(t, r.rdb.SSubscribe(t.Context(), r.channel), func() {
		reply, err := request.Send(t.Context(), r.rdb)
		if err != nil || reply.Code != script.Released || reply.Receivers != 1 {
			t.Errorf("SPUBLISH: %+v, %v", reply, err)
		}
	}, func() error { return r.rdb.SPublish(t.Context(), r.channel, endMark).Err() })
	if !slices.Equal(got, []string{"0"}) {
		t.Errorf("SPUBLISH: received %q", got)
	}

	start := r.set(t, held)
	request.Publish = "NOPUBLISH"
	reply, err := request.Send(t.Context(), r.rdb)
	if err != nil || reply.Code != script.Released || reply.Receivers != -1 ||
		!strings.Contains(reply.Refusal, "Unknown Redis command") {
		t.Errorf("unknown command: %+v, %v; want a release with the refusal in it", reply, err)
	}
	r.check(t, state{}, start)
}

// TestReleaseInTheLastMillisecond lowers the count of a key whose PTTL is 0: one
// that is in its last millisecond and not expired yet. PEXPIRE 0 would delete
// it, and the count would then be that of a new key, without a TTL.
func TestReleaseInTheLastMillisecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.rdb.ScriptLoad(t.Context(), script.ReleaseScript.Source()).Err(); err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(10 * time.Second)
	for hits := 0; hits < 20; {
		if time.Now().After(limit) {
			t.Fatalf("only %d releases met a key with PTTL 0", hits)
		}
		r.set(t, state{fields(mine, "2"), 2 * time.Millisecond})
		for left := true; left; {
			before, lowered, after := r.lowerAtOnce(t)
			if after == -1 {
				t.Fatalf("a release of depth 2 at a TTL of %v left a key without one", before)
			}
			if before == 0 && lowered {
				hits++
			}
			left = after > 0
		}
	}
}

// lowerAtOnce releases an inner hold with nothing in between, and returns the
// TTL before and after and whether the owner was there.
func (r *rig) lowerAtOnce(t *testing.T) (before time.Duration, lowered bool, after time.Duration) {
	t.Helper()
	ctx := t.Context()
	pipe := r.rdb.TxPipeline()
	first := pipe.PTTL(ctx, r.key)
	reply := pipe.EvalSha(ctx, script.ReleaseScript.SHA(), []string{r.key}, mine, 2, r.channel, "PUBLISH", "0")
	second := pipe.PTTL(ctx, r.key)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	codes, err := reply.Int64Slice()
	if err != nil {
		t.Fatal(err)
	}
	return first.Val(), codes[0] == int64(script.Lowered), second.Val()
}
