package script_test

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

// heldUp is put before a script to make PEXPIRE do what it does on a server
// that is held up for the whole TTL between the two times at which it reads the
// clock: the end that it sets has passed already, and it deletes the key.
const heldUp = `
local server = redis
local redis = setmetatable({}, {__index = server})
local function late(send)
  return function(...)
    local command, key = ...
    if command == 'PEXPIRE' then
      return send('DEL', key)
    end
    return send(...)
  end
end
redis.call, redis.pcall = late(server.call), late(server.pcall)
`

// TestHeldUpServer: no script brings a key back that PEXPIRE has deleted. It
// would be one without a TTL, which blocks everybody for ever.
func TestHeldUpServer(t *testing.T) {
	t.Parallel()
	ms := lease.Milliseconds()
	for _, c := range []struct {
		name   string
		script *script.Script
		before state
		args   []any
		code   int64
	}{
		{"an inner release", script.ReleaseScript, state{fields(mine, "2"), longer}, []any{mine, 2, "channel", "PUBLISH", "0"}, int64(script.Gone)},
		{"a re-entry", script.AcquireScript, state{fields(mine, "1"), longer}, []any{mine, 2, ms, 0}, int64(script.Lost)},
		{"a copy of an acquire", script.AcquireScript, state{fields(mine, "1"), longer}, []any{mine, 1, ms, 0}, int64(script.Granted)},
		{"an acquire", script.AcquireScript, state{}, []any{mine, 1, ms, 0}, int64(script.Granted)},
	} {
		r := newRig(t)
		r.set(t, c.before)
		reply, err := r.rdb.Eval(t.Context(), heldUp+c.script.Source(), []string{r.key}, c.args...).Int64Slice()
		if err != nil || reply[0] != c.code {
			t.Errorf("%s: %v, %v; want %d", c.name, reply, err, c.code)
		}
		r.check(t, state{}, time.Now())
	}
}
