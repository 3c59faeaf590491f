package script_test

import (
	"flag"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

var oracleSeed = flag.Uint64("oracle.seed", 0, "the seed of the random walks; 0 for a new one")

// TestOracle walks at random over what clients do with one lock, on a network
// that loses messages, repeats, delays and reorders them, and compares the
// server after each step with what should be there.
func TestOracle(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	const walks, steps = 4, 10_000
	done := make([]*walk, walks)
	t.Run("walks", func(t *testing.T) {
		for n := range uint64(walks) {
			t.Run(strconv.FormatUint(n, 10), func(t *testing.T) {
				t.Parallel()
				w := newWalk(t, srv.Client(t), redistest.Prefix(t)+"lock", n)
				done[n] = w
				w.run(steps)
			})
		}
	})
	checkSeen(t, done, slices.Concat(common, []string{
		"acquire lost", "renew gone", "predecessor replaced", "copy after its release", "expired",
	}))
}

// TestOracleEmbedded is TestOracle on the embedded server, whose reading of the
// scripts is another one's.
func TestOracleEmbedded(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWalk(t, rdb, "lock", 0)
	w.run(4000)
	checkSeen(t, []*walk{w}, common)
}

// common is what any walk meets.
var common = []string{
	"acquire granted", "acquire held", "acquire late", "re-entry", "release gone", "release released", "release lowered",
	"renew renewed", "belief checked", "count checked", "message lost", "message repeated", "executed out of order",
}

// checkSeen fails a test whose walks did not meet what they are there for.
func checkSeen(t *testing.T, walks []*walk, names []string) {
	t.Helper()
	for _, name := range names {
		var times int
		for _, w := range walks {
			times += w.seen[name]
		}
		if times == 0 {
			t.Errorf("in no walk there was: %s", name)
		}
	}
}
