package pubsub_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

func TestNewChecksItsArguments(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close() //nolint:errcheck // Never connected.
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close() //nolint:errcheck // Never connected.
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		o    pubsub.Options
		want string // In the error; empty: no error.
	}{
		"zero":            {rdb, pubsub.Options{}, ""},
		"off":             {rdb, pubsub.Options{Sharding: pubsub.Off}, ""},
		"on":              {rdb, pubsub.Options{Sharding: pubsub.On}, "Options.Sharding: On is not supported yet; use Auto or Off"},
		"unknown":         {rdb, pubsub.Options{Sharding: 3}, "Options.Sharding"},
		"negative ping":   {rdb, pubsub.Options{PingEvery: -1}, "Options.PingEvery"},
		"negative pong":   {rdb, pubsub.Options{PongWait: -1}, "Options.PongWait"},
		"negative linger": {rdb, pubsub.Options{Linger: -1}, "Options.Linger"},
		"nil":             {nil, pubsub.Options{}, "client is nil"},
		"typed nil":       {(*redis.Client)(nil), pubsub.Options{}, "client is nil"},
		"ring":            {ring, pubsub.Options{}, "redis.Ring"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := pubsub.New(c.rdb, c.o)
			if c.want == "" {
				if err != nil || h == nil {
					t.Fatalf("New = %v, %v", h, err)
				}
				return
			}
			if err == nil || h != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New = %v, %v; want an error with %q", h, err, c.want)
			}
		})
	}
}

func TestEmptyChannelName(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close() //nolint:errcheck // Never connected.
	h := newHub(t, rdb, pubsub.Options{})
	if s, err := h.Subscribe(t.Context(), ""); err == nil || s != nil {
		t.Errorf("Subscribe = %v, %v", s, err)
	}
}
