package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkLimit is how long the Check functions wait for what is left to go.
const checkLimit = 2 * time.Second

// Eventually polls cond until it is true and fails the test when it is not so
// within the given time. cond is called once more at the end, so that a machine
// that was busy meanwhile does not fail what has come true.
func Eventually(tb TB, within time.Duration, cond func() bool, format string, args ...any) {
	tb.Helper()
	if !poll(within, cond) {
		tb.Fatalf("not within %v: %s", within, fmt.Sprintf(format, args...))
	}
}

func poll(within time.Duration, cond func() bool) bool {
	limit := time.NewTimer(within)
	defer limit.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return cond()
		}
	}
}

// CheckNoKeys fails the test, naming what is left, when 2 s from now there is
// still a key that begins with prefix. It returns as soon as there is none. It
// does not end the test, and it may be called from a cleanup.
func (s *Server) CheckNoKeys(tb TB, prefix string) {
	tb.Helper()
	s.checkNone(tb, fmt.Sprintf("keys with the prefix %q", prefix), func(ctx context.Context, c *redis.Conn) ([]string, error) {
		return keysLeft(ctx, c, escapeGlob(prefix)+"*")
	})
}

// CheckNoChannels fails the test, naming what is left, when 2 s from now
// somebody is still subscribed to a channel or shard channel that matches the
// glob pattern. It returns as soon as nobody is. It does not end the test, and
// it may be called from a cleanup.
func (s *Server) CheckNoChannels(tb TB, pattern string) {
	tb.Helper()
	s.checkNone(tb, fmt.Sprintf("channels that match %q", pattern), func(ctx context.Context, c *redis.Conn) ([]string, error) {
		return channelsLeft(ctx, c, pattern)
	})
}

// checkNone polls until left returns nothing.
func (s *Server) checkNone(tb TB, what string, left func(context.Context, *redis.Conn) ([]string, error)) {
	tb.Helper()
	err := s.tryAsk(func(ctx context.Context, c *redis.Conn) error {
		var found []string
		var err error
		if poll(checkLimit, func() bool {
			found, err = left(ctx, c)
			return err != nil || len(found) == 0
		}) {
			return err
		}
		return fmt.Errorf("still there after %v: %s:\n  %s", checkLimit, what, strings.Join(found, "\n  "))
	})
	if err != nil {
		tb.Errorf("redistest: %s: %v", s.Addr(), err)
	}
}

// keysLeft lists the keys that match, each with its type and time to live.
func keysLeft(ctx context.Context, c *redis.Conn, pattern string) ([]string, error) {
	var left []string
	it := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		left = append(left, it.Val())
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	for i, key := range left {
		typ, err := c.Type(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		ttl, err := c.PTTL(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		left[i] = fmt.Sprintf("%q (%s, PTTL %v)", key, typ, ttl)
	}
	return left, nil
}

func channelsLeft(ctx context.Context, c *redis.Conn, pattern string) ([]string, error) {
	plain, err := c.PubSubChannels(ctx, pattern).Result()
	if err != nil {
		return nil, err
	}
	sharded, err := c.PubSubShardChannels(ctx, pattern).Result()
	if err != nil && !noShardChannels(err) {
		return nil, err
	}
	return append(plain, sharded...), nil
}

// noShardChannels recognises the answer of a server older than Redis 7.
func noShardChannels(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "ERR Unknown subcommand")
}

// escapeGlob makes a pattern that matches s alone.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
