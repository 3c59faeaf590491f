package script_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// A walk has a clock of its own, which counts in ticks. One tick stands for so
// much time on the server that what really passes there in a walk is nothing
// beside it: leases and deadlines are whole numbers of ticks of the server's
// TIME, and a tick is made to pass by shortening the key's TTL by it.
const tick = 10_000 * time.Second

// elapse lets ARGV[1] ms pass for a key.
var elapse = redis.NewScript(`
local left = redis.call('PTTL', KEYS[1]) - ARGV[1]
if left <= 0 then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], left)`)

// lockState is a lock as it should be in Redis, or as it is there.
type lockState struct {
	fields  map[string]int // owner -> count
	expires int            // the tick at which the key goes; of no meaning without fields
}

func (s lockState) equal(other lockState) bool {
	return maps.Equal(s.fields, other.fields) && (len(s.fields) == 0 || s.expires == other.expires)
}

// request is a message to the server.
type request struct {
	kind         requestKind
	party        *party
	op           int // the operation of the party that it is a copy for
	seq          int // the order in which the party issued what changes its count
	depth        int
	lease        int // ticks
	deadline     int // tick; noDeadline for none
	predecessors []string
	sent         int // tick
}

type requestKind string

const (
	acquire requestKind = "acquire"
	release requestKind = "release"
	renew   requestKind = "renew"

	noDeadline = -1
)

// outcome is what the server answers; which of them depends on the request.
type outcome struct {
	acquired script.AcquireCode
	released script.ReleaseCode
	renewed  script.RenewCode
}

// execute says what the server should answer, and changes the lock as it should.
func (s *lockState) execute(m request, now int) outcome {
	_, own := s.fields[m.party.id]
	switch m.kind {
	case acquire:
		return outcome{acquired: s.acquire(m, now, own)}
	case release:
		return outcome{released: s.release(m, own)}
	default:
		if !own {
			return outcome{renewed: script.RenewGone}
		}
		s.expires = max(s.expires, now+m.lease)
		return outcome{renewed: script.Renewed}
	}
}

func (s *lockState) acquire(m request, now int, own bool) script.AcquireCode {
	id := m.party.id
	switch {
	case m.deadline != noDeadline && now > m.deadline:
		return script.Late
	case own:
		s.fields[id] = max(s.fields[id], m.depth)
		s.expires = max(s.expires, now+m.lease)
		return script.Granted
	case m.depth > 1:
		return script.Lost
	}
	for _, p := range m.predecessors {
		delete(s.fields, p)
	}
	if len(s.fields) > 0 {
		return script.Held
	}
	s.fields[id], s.expires = m.depth, now+m.lease
	return script.Granted
}

func (s *lockState) release(m request, own bool) script.ReleaseCode {
	switch {
	case !own:
		return script.Gone
	case m.depth == 1:
		clear(s.fields)
		return script.Released
	}
	s.fields[m.party.id] = min(s.fields[m.party.id], m.depth-1)
	return script.Lowered
}

// pass lets a tick go by.
func (s *lockState) pass(now int) {
	if s.expires <= now {
		clear(s.fields)
	}
}

// lockServer is the server of a walk: one key on a real one.
type lockServer struct {
	rdb *redis.Client
	key string
}

// execute sends a message through the package under test.
func (s *lockServer) execute(ctx context.Context, m request, now int) (outcome, error) {
	switch m.kind {
	case acquire:
		deadline, err := s.deadline(ctx, m, now)
		if err != nil {
			return outcome{}, err
		}
		reply, err := script.Acquire{
			Key: s.key, Owner: m.party.id, Depth: m.depth, Lease: time.Duration(m.lease) * tick,
			Deadline: deadline, Predecessors: m.predecessors,
		}.Send(ctx, s.rdb)
		return outcome{acquired: reply.Code}, err
	case release:
		reply, err := script.Release{
			Key: s.key, Owner: m.party.id, Depth: m.depth, Channel: wire.Channel(s.key), Publish: "PUBLISH",
		}.Send(ctx, s.rdb)
		return outcome{released: reply.Code}, err
	default:
		codes, _, err := script.Renew(ctx, s.rdb, []script.Renewal{
			{Key: s.key, Owner: m.party.id, Lease: time.Duration(m.lease) * tick},
		})
		if err != nil {
			return outcome{}, err
		}
		return outcome{renewed: codes[0]}, nil
	}
}

// deadline translates a deadline into the server's clock: the middle of its
// tick, far from everything that a walk's own duration could change.
func (s *lockServer) deadline(ctx context.Context, m request, now int) (int64, error) {
	if m.deadline == noDeadline {
		return 0, nil
	}
	at, err := s.rdb.Time(ctx).Result()
	return at.Add(time.Duration(m.deadline-now)*tick + tick/2).UnixMilli(), err
}

func (s *lockServer) pass(ctx context.Context) error {
	return elapse.Run(ctx, s.rdb, []string{s.key}, tick.Milliseconds()).Err()
}

// maxPassed is far more than what really passes in a walk, with what elapse
// loses to rounding, and far less than a tick.
const maxPassed = tick / 100

// state reads the key. A TTL that is not a whole number of ticks, less what has
// really passed, is an error.
func (s *lockServer) state(ctx context.Context, now int) (lockState, error) {
	pipe := s.rdb.Pipeline()
	all, ttl := pipe.HGetAll(ctx, s.key), pipe.PTTL(ctx, s.key)
	if _, err := pipe.Exec(ctx); err != nil {
		return lockState{}, err
	}
	got := lockState{fields: make(map[string]int)}
	for id, text := range all.Val() {
		n, err := strconv.Atoi(text)
		if err != nil {
			return got, err
		}
		got.fields[id] = n
	}
	if len(got.fields) == 0 {
		return got, nil
	}
	left := int((ttl.Val() + tick - 1) / tick)
	got.expires = now + left
	if passed := time.Duration(left)*tick - ttl.Val(); ttl.Val() <= 0 || passed > maxPassed {
		return got, fmt.Errorf("the TTL of %v is %v, in ticks of %v", got.fields, ttl.Val(), tick)
	}
	return got, nil
}
