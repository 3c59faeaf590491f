package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Commands runs fn and returns how often each command was executed meanwhile,
// by its lower-case name ("evalsha", "client|id"), from INFO commandstats. It
// counts the whole server: other clients, and what scripts call, but not its
// own INFO.
func (s *Server) Commands(tb TB, fn func()) map[string]int64 {
	tb.Helper()
	var diff map[string]int64
	s.ask(tb, func(ctx context.Context, c *redis.Conn) error {
		before, err := commandStats(ctx, c)
		if err != nil {
			return err
		}
		fn()
		// fn may have taken longer than the bound on a question.
		diff, err = commandStats(context.WithoutCancel(ctx), c)
		if err != nil {
			return err
		}
		diff["info"]-- // the first INFO is counted after it has answered
		subtract(diff, before)
		return nil
	})
	return diff
}

// subtract lowers each count by its former value and drops those left at 0.
func subtract(counts, former map[string]int64) {
	for name := range counts {
		counts[name] -= former[name]
		if counts[name] == 0 {
			delete(counts, name)
		}
	}
}

func commandStats(ctx context.Context, c *redis.Conn) (map[string]int64, error) {
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, err
	}
	return parseCommandStats(text)
}

// parseCommandStats reads lines such as
// "cmdstat_hset:calls=3,usec=12,usec_per_call=4.00,...".
func parseCommandStats(text string) (map[string]int64, error) {
	counts := make(map[string]int64)
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_")
		if !ok {
			continue
		}
		name, fields, _ := strings.Cut(rest, ":calls=")
		calls, _, _ := strings.Cut(fields, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("commandstats: %q: %w", line, err)
		}
		counts[name] = n
	}
	return counts, nil
}
