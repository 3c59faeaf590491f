package wire_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/wire"
)

func TestChannelIsSpelledAsRedissonSpellsIt(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"job":          "redisson_lock__channel:{job}",
		"app:{42}:job": "redisson_lock__channel:app:{42}:job",
		"a}b":          "redisson_lock__channel:{a}b}",
		"a{b":          "redisson_lock__channel:a{b",
		"schlüssel":    "redisson_lock__channel:{schlüssel}",
	} {
		if got := wire.Channel(key); got != want {
			t.Errorf("Channel(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestNamesThatAClusterWouldSplitAreRefused(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		"job":          true,
		"app:{42}:job": true,
		"{t}a":         true,
		"a{b}c":        true,
		"ключ":         true,
		"a{b":          false,
		"{":            false,
		"}":            false,
		"{}":           false,
		"{}x":          false,
		"x{}y":         false,
		"a}b":          false,
		"a}b{c}":       true,
	} {
		err := wire.CheckCluster(key)
		if (err == nil) != ok {
			t.Errorf("CheckCluster(%q) = %v, want ok %v", key, err, ok)
		}
		if same := wire.Slot(key) == wire.Slot(wire.Channel(key)); ok && !same {
			t.Errorf("key %q was accepted, and its channel is on another slot", key)
		}
	}
}

// The slots are those that CLUSTER KEYSLOT of a real server answers; the first
// is the check value of the Redis Cluster specification.
func TestSlotIsTheServersOwn(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{
		"123456789":               0x31c3,
		"foo":                     12182,
		"{user1000}.following":    wire.Slot("{user1000}.followers"),
		"foo{}{bar}":              8363,
		"foo{{bar}}zap":           wire.Slot("{bar"),
		"foo{bar}{zap}":           wire.Slot("bar"),
		"":                        0,
		wire.Channel("123456789"): 0x31c3,
	} {
		if got := wire.Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
}
