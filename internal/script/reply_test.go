package script_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/script"
)

// answers is a server that answers everything with one value.
type answers struct{ value any }

func (a answers) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.(interface{ SetVal(any) }).SetVal(a.value)
	return nil
}

// calls makes each call of this package once and returns their errors.
func calls(ctx context.Context, p script.Processor) map[string]error {
	_, acquire := script.Acquire{Key: "k", Owner: mine, Depth: 1, Lease: lease}.Send(ctx, p)
	_, release := script.Release{Key: "k", Owner: mine, Depth: 1, Channel: "c", Publish: "PUBLISH"}.Send(ctx, p)
	_, _, renew := script.Renew(ctx, p, []script.Renewal{{Key: "k", Owner: mine, Lease: lease}})
	_, info := script.Info(ctx, p, "k")
	return map[string]error{"acquire": acquire, "release": release, "renew": renew, "info": info}
}

// list is a reply of several elements.
func list(elements ...any) []any { return elements }

// TestOddReplies: what no script answers is ErrReply, for every script that
// cannot answer it, and never a panic.
func TestOddReplies(t *testing.T) {
	t.Parallel()
	const all = "acquire release renew info"
	for _, c := range []struct {
		name   string
		answer any
		odd    string // for whom it is
	}{
		{"nil", nil, all},
		{"text", "OK", all},
		{"a number", int64(1), all},
		{"a truth value", true, all},
		{"a map", map[any]any{"a": int64(1)}, all},
		{"an error within", errors.New("ERR"), all},
		{"no elements", list(), all},
		{"one number", list(int64(1)), all},
		{"two numbers", list(int64(1), int64(2)), "acquire release"},
		{"an outcome that renew has not", list(int64(1), int64(3)), "acquire release renew"},
		{"a negative outcome", list(int64(1), int64(-1)), "acquire release renew"},
		{"three texts", list("1", "2", "3"), all},
		{"a text first", list("1", int64(2), int64(3)), all},
		{"a text second", list(int64(1), "2", int64(3)), all},
		{"a text last", list(int64(1), int64(2), "3"), "acquire release renew info"},
		{"nils", list(nil, nil, nil), all},
		{"numbers with a fraction", list(1.0, 2.0, 3.0), all},
		{"a code below", list(int64(-1), int64(2), int64(3)), all},
		{"a code above", list(int64(4), int64(2), int64(3)), all},
		{"lists", list(list(), list(), list()), all},
		{"an error element", list(int64(1), int64(2), errors.New("ERR")), all},
		{"a field without a value", list(int64(1), int64(2), "owner"), all},
	} {
		for name, err := range calls(t.Context(), answers{c.answer}) {
			odd := strings.Contains(c.odd, name)
			if odd != errors.Is(err, script.ErrReply) || !odd && err != nil {
				t.Errorf("%s to %s: %v", c.name, name, err)
			}
			if odd && (script.Answered(err) || script.NotSent(err) || script.Passing(err)) {
				t.Errorf("%s to %s: %v is taken for an answer, for not sent or for passing", c.name, name, err)
			}
		}
	}
}

// TestLongReply: an error tells the beginning of a reply that is long.
func TestLongReply(t *testing.T) {
	t.Parallel()
	long := make([]any, 10_000)
	for i := range long {
		long[i] = strings.Repeat("x", 1000)
	}
	for name, err := range calls(t.Context(), answers{long}) {
		if !errors.Is(err, script.ErrReply) || len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// TestHugeNumbers: a TTL beyond what a Duration can hold stays positive, since a
// negative one says that there is none.
func TestHugeNumbers(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{math.MaxInt64, math.MaxInt64 / int64(time.Millisecond), math.MaxInt64/int64(time.Millisecond) + 1, 1 << 62} {
		p := answers{list(int64(script.Held), ms, int64(math.MaxInt64))}
		held, err := script.Acquire{Key: "k", Owner: mine, Depth: 1, Lease: lease}.Send(t.Context(), p)
		if err != nil || held.TTL <= 0 || held.Now != math.MaxInt64 {
			t.Errorf("a TTL of %d ms: %+v, %v", ms, held, err)
		}
		info, err := script.Info(t.Context(), answers{list(ms, int64(1), "owner", "1")}, "k")
		if err != nil || info.TTL <= 0 || !info.Exists {
			t.Errorf("a TTL of %d ms: %+v, %v", ms, info, err)
		}
	}
	for _, ms := range []int64{-1, math.MinInt64, math.MinInt64 + 1, -math.MaxInt64 / 2} {
		held, err := script.Acquire{Key: "k", Owner: mine, Depth: 1, Lease: lease}.
			Send(t.Context(), answers{list(int64(script.Held), ms, int64(1))})
		if err != nil || held.TTL >= 0 {
			t.Errorf("a TTL of %d ms: %+v, %v", ms, held, err)
		}
	}
}

// TestNilIsNoAnswer: go-redis tells a nil reply by an error that looks like the
// server's. No script answers nil, so nothing may be concluded from it.
func TestNilIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, err := range calls(t.Context(), fails{redis.Nil}) {
		if !errors.Is(err, script.ErrReply) || script.Answered(err) {
			t.Errorf("%s: %v, want ErrReply", name, err)
		}
	}
}

// fails is a client whose every call fails.
type fails struct{ err error }

func (f fails) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(f.err)
	return f.err
}

// FuzzReply gives arbitrary replies to every script: an error is ErrReply, and
// what is no error is within what the script can answer.
func FuzzReply(f *testing.F) {
	for _, seed := range [][]byte{
		{},
		{0, 3},
		{0, 3, 0, 4, 0, 5},
		{0, 2, 2, 63, 2, 41},
		{3, 'a', 3, 'b', 3, 'c'},
		{4, 0, 4, 0, 4, 0},
		{0, 0, 0, 4},
		{2, 10, 2, 40, 3, 'o', 3, '1'},
		{0, 9, 0, 9, 0, 9},
		{6, 1, 5, 1, 0, 3},
		{2, 41, 0, 3, 0, 2, 0, 4},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := decode(data)
		p := answers{reply}
		for name, err := range calls(t.Context(), p) {
			if err != nil && !errors.Is(err, script.ErrReply) {
				t.Errorf("%s of %v: %v", name, reply, err)
			}
		}
		a, err := script.Acquire{Key: "k", Owner: mine, Depth: 1, Lease: lease}.Send(t.Context(), p)
		if err == nil && (a.Code < script.Held || a.Code > script.Lost) {
			t.Errorf("acquire of %v: %+v", reply, a)
		}
		r, err := script.Release{Key: "k", Owner: mine, Depth: 1}.Send(t.Context(), p)
		if err == nil && (r.Code < script.Gone || r.Code > script.Lowered) {
			t.Errorf("release of %v: %+v", reply, r)
		}
		batch := make([]script.Renewal, max(len(reply)-1, 0))
		codes, _, err := script.Renew(t.Context(), p, batch)
		for _, code := range codes {
			if code < script.RenewGone || code > script.RenewFailed {
				t.Errorf("renew of %v: %v, %v", reply, codes, err)
			}
		}
		i, err := script.Info(t.Context(), p, "k")
		if err == nil && (2*len(i.Fields)+2 != len(reply) || i.TTL > 0 && !i.Exists) {
			t.Errorf("info of %v: %+v", reply, i)
		}
	})
}

// decode makes a reply of bytes, two for an element: what kind it is, and its
// value.
func decode(data []byte) []any {
	reply := []any{}
	for ; len(data) > 1; data = data[2:] {
		value := data[1]
		switch data[0] % 7 {
		case 0, 1:
			reply = append(reply, int64(value%8)-2)
		case 2:
			reply = append(reply, int64(1)<<(value%64))
		case 3:
			reply = append(reply, string(rune(value)))
		case 4:
			reply = append(reply, nil)
		case 5:
			reply = append(reply, float64(value))
		case 6:
			reply = append(reply, []any{int64(value)})
		}
	}
	return reply
}
