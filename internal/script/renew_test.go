package script_test

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

var renewCases = []struct {
	name   string
	before state
	code   script.RenewCode
	after  state
}{
	{name: "no key", code: script.RenewGone},
	{
		name: "shorter", before: state{fields(mine, "1"), shorter},
		code: script.Renewed, after: state{fields(mine, "1"), lease},
	},
	{
		name: "longer", before: state{fields(mine, "2"), longer},
		code: script.Renewed, after: state{fields(mine, "2"), longer},
	},
	{
		name: "no TTL", before: state{fields(mine, "1"), noTTL},
		code: script.Renewed, after: state{fields(mine, "1"), lease},
	},
	{
		name: "another owner", before: state{fields(theirs, "1"), shorter},
		code: script.RenewGone, after: state{fields(theirs, "1"), shorter},
	},
	{
		name: "a field beside ours", before: state{fields(mine, "1", theirs, "1"), shorter},
		code: script.Renewed, after: state{fields(mine, "1", theirs, "1"), lease},
	},
	{
		name: "no number", before: state{fields(mine, "many"), shorter},
		code: script.Renewed, after: state{fields(mine, "many"), lease},
	},
}

func TestRenew(t *testing.T) {
	t.Parallel()
	for _, c := range renewCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			start := r.set(t, c.before)
			now := r.now(t)
			codes, at, err := script.Renew(t.Context(), r.rdb, []script.Renewal{{Key: r.key, Owner: mine, Lease: lease}})
			if err != nil || !slices.Equal(codes, []script.RenewCode{c.code}) {
				t.Errorf("%v, %v; want %v", codes, err, c.code)
			}
			r.checkNow(t, now, at)
			r.check(t, c.after, start)
		})
	}
}

// TestRenewMany renews keys in all those states in one call, with one of
// another type in their middle: each has its own outcome, and its own lease.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	var (
		rigs   []*rig
		starts []time.Time
		batch  []script.Renewal
		want   []script.RenewCode
	)
	add := func(r *rig, start time.Time, lease time.Duration, code script.RenewCode) {
		rigs, starts, want = append(rigs, r), append(starts, start), append(want, code)
		batch = append(batch, script.Renewal{Key: r.key, Owner: mine, Lease: lease})
	}
	for i, c := range renewCases {
		if i == len(renewCases)/2 {
			data := newRig(t)
			if err := data.rdb.Set(t.Context(), data.key, "data", 0).Err(); err != nil {
				t.Fatal(err)
			}
			add(data, time.Now(), lease, script.RenewGone)
		}
		r := newRig(t)
		add(r, r.set(t, c.before), lease, c.code)
	}
	other := newRig(t)
	const twice = 2 * longer
	add(other, other.set(t, state{fields(mine, "1"), longer}), twice, script.Renewed)

	codes, _, err := script.Renew(t.Context(), other.rdb, batch)
	if err != nil || !slices.Equal(codes, want) {
		t.Fatalf("%v, %v; want %v", codes, err, want)
	}
	var cases int
	for i, r := range rigs[:len(rigs)-1] {
		if i == len(renewCases)/2 {
			if got := r.rdb.Get(t.Context(), r.key).Val(); got != "data" || r.rdb.PTTL(t.Context(), r.key).Val() != -1 {
				t.Errorf("the key of another type holds %q, with a TTL", got)
			}
			continue
		}
		r.check(t, renewCases[cases].after, starts[i])
		cases++
	}
	other.check(t, state{fields(mine, "1"), twice}, starts[len(starts)-1])
}

// TestRenewOneKeyTwice: two owners ask for one key. The one that has it gets it.
func TestRenewOneKeyTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	start := r.set(t, state{fields(mine, "1"), shorter})
	codes, _, err := script.Renew(t.Context(), r.rdb, []script.Renewal{
		{Key: r.key, Owner: theirs, Lease: longer}, {Key: r.key, Owner: mine, Lease: lease},
	})
	if err != nil || !slices.Equal(codes, []script.RenewCode{script.RenewGone, script.Renewed}) {
		t.Errorf("%v, %v", codes, err)
	}
	r.check(t, state{fields(mine, "1"), lease}, start)
}

func TestRenewNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := r.now(t)
	codes, at, err := script.Renew(t.Context(), r.rdb, nil)
	if err != nil || len(codes) != 0 {
		t.Errorf("%v, %v", codes, err)
	}
	r.checkNow(t, now, at)
}

func TestInfo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		state state
	}{
		{"free", state{}},
		{"held", state{fields(mine, "2"), lease}},
		{"no TTL", state{fields(mine, "1"), noTTL}},
		{"no number", state{fields("mode", "read", mine, "many"), lease}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			start := r.set(t, c.state)
			now := r.now(t)
			info, err := script.Info(t.Context(), r.rdb, r.key)
			if err != nil || info.Exists != (len(c.state.fields) > 0) {
				t.Fatalf("%+v, %v", info, err)
			}
			if len(info.Fields) != len(c.state.fields) {
				t.Errorf("fields %v, want %v", info.Fields, c.state.fields)
			}
			for _, f := range info.Fields {
				if want, ok := c.state.fields[f.Owner]; !ok || want != f.Count {
					t.Errorf("field %+v, want %v", f, c.state.fields)
				}
			}
			checkTTL(t, info.TTL, c.state.ttl, start)
			r.checkNow(t, now, info.Now)
			r.check(t, c.state, start)
		})
	}
}

func TestInfoWrongType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.rdb.RPush(t.Context(), r.key, "data").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := script.Info(t.Context(), r.rdb, r.key); !script.WrongType(err) {
		t.Errorf("%v, want WRONGTYPE", err)
	}
}
