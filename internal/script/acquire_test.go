package script_test

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

const (
	lease   = 30 * time.Second
	longer  = time.Minute
	shorter = 10 * time.Second
)

// acquireCase is one state of a key, one request, and what is there afterwards.
type acquireCase struct {
	name         string
	before       state
	depth        int
	late         bool // the deadline has passed
	dated        bool // a deadline is given and has not passed
	predecessors []string
	code         script.AcquireCode
	ttl          time.Duration // in the reply
	after        state
}

var acquireCases = []acquireCase{
	{
		name: "free", depth: 1,
		code: script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "free and in time", depth: 1, dated: true,
		code: script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{name: "free and late", depth: 1, late: true, code: script.Late},
	{name: "free, for an inner hold", depth: 2, code: script.Lost},
	{
		name: "a copy after the grant", depth: 1, dated: true, before: state{fields(mine, "1"), shorter},
		code: script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "a late copy after the grant", depth: 1, late: true, before: state{fields(mine, "1"), shorter},
		code: script.Late, after: state{fields(mine, "1"), shorter},
	},
	{
		name: "an inner hold raises count and TTL", depth: 2, before: state{fields(mine, "1"), shorter},
		code: script.Granted, ttl: lease, after: state{fields(mine, "2"), lease},
	},
	{
		name: "a longer TTL stays", depth: 2, before: state{fields(mine, "1"), longer},
		code: script.Granted, ttl: longer, after: state{fields(mine, "2"), longer},
	},
	{
		name: "a missing TTL is set", depth: 2, before: state{fields(mine, "1"), noTTL},
		code: script.Granted, ttl: lease, after: state{fields(mine, "2"), lease},
	},
	{
		name: "a higher count stays", depth: 2, before: state{fields(mine, "5"), longer},
		code: script.Granted, ttl: longer, after: state{fields(mine, "5"), longer},
	},
	{
		name: "a count that is no number is replaced", depth: 3, before: state{fields(mine, "many"), longer},
		code: script.Granted, ttl: longer, after: state{fields(mine, "3"), longer},
	},
	{
		name: "an empty count is replaced", depth: 1, before: state{fields(mine, ""), longer},
		code: script.Granted, ttl: longer, after: state{fields(mine, "1"), longer},
	},
	{
		name: "a field beside ours stays", depth: 2, before: state{fields(mine, "1", theirs, "1"), longer},
		code: script.Granted, ttl: longer, after: state{fields(mine, "2", theirs, "1"), longer},
	},
	{
		name: "held", depth: 1, before: state{fields(theirs, "1"), longer},
		code: script.Held, ttl: longer, after: state{fields(theirs, "1"), longer},
	},
	{
		name: "held without a TTL", depth: 1, before: state{fields(theirs, "1"), noTTL},
		code: script.Held, ttl: noTTL, after: state{fields(theirs, "1"), noTTL},
	},
	{
		name: "held, for an inner hold", depth: 2, before: state{fields(theirs, "1"), longer},
		code: script.Lost, after: state{fields(theirs, "1"), longer},
	},
	{
		name: "held by something that is no lock", depth: 1, before: state{fields("mode", "read", theirs, "x"), longer},
		code: script.Held, ttl: longer, after: state{fields("mode", "read", theirs, "x"), longer},
	},
	{
		name: "a predecessor is replaced", depth: 1, predecessors: []string{ghost1}, before: state{fields(ghost1, "1"), longer},
		code: script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "a predecessor without a TTL is replaced", depth: 1, predecessors: []string{ghost1},
		before: state{fields(ghost1, "1"), noTTL},
		code:   script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "several predecessors are replaced", depth: 1, predecessors: []string{ghost2, "none", ghost1},
		before: state{fields(ghost1, "1", ghost2, "4"), longer},
		code:   script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "a predecessor beside another holder", depth: 1, predecessors: []string{ghost1},
		before: state{fields(ghost1, "1", theirs, "2"), longer},
		code:   script.Held, ttl: longer, after: state{fields(theirs, "2"), longer},
	},
	{
		name: "a predecessor and another holder", depth: 1, predecessors: []string{ghost1, ghost2},
		before: state{fields(theirs, "2"), shorter},
		code:   script.Held, ttl: shorter, after: state{fields(theirs, "2"), shorter},
	},
	{
		name: "predecessors of a free lock", depth: 1, predecessors: []string{ghost1, ghost2},
		code: script.Granted, ttl: lease, after: state{fields(mine, "1"), lease},
	},
	{
		name: "late: a predecessor stays", depth: 1, late: true, predecessors: []string{ghost1},
		before: state{fields(ghost1, "1"), longer},
		code:   script.Late, after: state{fields(ghost1, "1"), longer},
	},
	{
		name: "an inner hold replaces nobody", depth: 2, predecessors: []string{ghost1},
		before: state{fields(ghost1, "1"), longer},
		code:   script.Lost, after: state{fields(ghost1, "1"), longer},
	},
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	for _, c := range acquireCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			start := r.set(t, c.before)
			now := r.now(t)
			request := script.Acquire{
				Key: r.key, Owner: mine, Depth: c.depth, Lease: lease, Predecessors: c.predecessors,
				Deadline: c.deadline(now),
			}
			var reply script.AcquireReply
			messages := r.published(t, func() {
				var err error
				if reply, err = request.Send(t.Context(), r.rdb); err != nil {
					t.Fatal(err)
				}
			})
			if reply.Code != c.code {
				t.Errorf("code %d, want %d", reply.Code, c.code)
			}
			checkTTL(t, reply.TTL, c.ttl, start)
			r.checkNow(t, now, reply.Now)
			r.check(t, c.after, start)
			if len(messages) > 0 {
				t.Errorf("acquire published %q", messages)
			}
		})
	}
}

// deadline returns one that has passed, or one that will not pass in the test.
func (c acquireCase) deadline(now int64) int64 {
	switch {
	case c.late:
		return now - 1
	case c.dated:
		return now + time.Hour.Milliseconds()
	}
	return 0
}

// TestAcquireAtTheDeadline sends copies with deadlines around the server's
// clock: one is refused exactly when its reply shows that the deadline had passed.
func TestAcquireAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range int64(200) {
		r.set(t, state{})
		deadline := r.now(t) + i%3
		reply, err := script.Acquire{Key: r.key, Owner: mine, Depth: 1, Lease: lease, Deadline: deadline}.Send(t.Context(), r.rdb)
		if err != nil {
			t.Fatal(err)
		}
		if late := reply.Now > deadline; late != (reply.Code == script.Late) {
			t.Fatalf("deadline %d, now %d: code %d", deadline, reply.Now, reply.Code)
		}
	}
}

// TestAcquireWrongType: a key of another type is an error and stays as it is.
func TestAcquireWrongType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, depth := range []int{1, 2} {
		if err := r.rdb.Set(t.Context(), r.key, "data", 0).Err(); err != nil {
			t.Fatal(err)
		}
		request := script.Acquire{Key: r.key, Owner: mine, Depth: depth, Lease: lease, Predecessors: []string{ghost1}}
		_, err := request.Send(t.Context(), r.rdb)
		if !script.WrongType(err) || !script.Answered(err) || script.Passing(err) {
			t.Errorf("depth %d: %v, want WRONGTYPE, answered, not passing", depth, err)
		}
		if got := r.rdb.Get(t.Context(), r.key).Val(); got != "data" {
			t.Errorf("depth %d: the key holds %q", depth, got)
		}
	}
}
