package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

const (
	answerWithin = 5 * time.Second // what a server gets to answer one question
	stopWithin   = 5 * time.Second
)

// target is the server that is measured on.
type target struct {
	kind    string // embedded, spawned or given
	options func() *redis.Options
	stop    func(context.Context) error // ends a server that is ours
}

// openTarget starts or reaches the server that -redis names. After an error
// nothing runs.
func openTarget(ctx context.Context, where string) (*target, error) {
	switch where {
	case redisEmbedded:
		return startEmbedded()
	case redisSpawn:
		return spawn(ctx)
	case redisAuto:
		t, err := spawn(ctx)
		if errors.Is(err, redistest.ErrNoServer) {
			return startEmbedded()
		}
		return t, err
	}
	if _, err := redis.ParseURL(where); err != nil {
		return nil, err
	}
	return &target{
		kind: "given",
		options: func() *redis.Options {
			opts, _ := redis.ParseURL(where) // parsed above
			return opts
		},
		stop: func(context.Context) error { return nil },
	}, nil
}

func startEmbedded() (*target, error) {
	server, err := embedded.Start()
	if err != nil {
		return nil, err
	}
	return &target{
		kind: "embedded",
		// miniredis does not know CLIENT SETINFO.
		options: func() *redis.Options { return &redis.Options{Addr: server.Addr(), DisableIdentity: true} },
		stop: func(context.Context) error {
			server.Close()
			return nil
		},
	}, nil
}

func spawn(ctx context.Context) (*target, error) {
	server, err := redistest.Start(ctx, redistest.Config{})
	if err != nil {
		return nil, err
	}
	return &target{
		kind:    "spawned",
		options: func() *redis.Options { return &redis.Options{Addr: server.Addr()} },
		stop:    server.Stop,
	}, nil
}

// version asks the server what it is, such as "Redis 7.0.15". It fails if the
// server does not answer.
func (t *target) version(ctx context.Context, rdb *redis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return "", fmt.Errorf("the server does not answer: %w", err)
	}
	if t.kind == "embedded" {
		return "miniredis", nil // it has no INFO server
	}
	// INFO may be forbidden, which is no reason not to measure: the text is then
	// empty.
	return versionIn(rdb.Info(ctx, "server").Val()), nil
}

// versionIn reads the reply of INFO server. Valkey says "redis_version" too, for
// programs that look for it.
func versionIn(info string) string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[k] = v
	}
	if v := fields["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return "Redis " + cmp.Or(fields["redis_version"], "of unknown version")
}

// errPrefixInUse means that somebody else has keys where this run wants its own.
var errPrefixInUse = errors.New("there are keys with this run's prefix already")

// claim fails if there is a key with the prefix, which holds no character that
// means something in a pattern.
func claim(ctx context.Context, rdb *redis.Client, prefix string) error {
	it := rdb.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	if it.Next(ctx) {
		return fmt.Errorf("%w: %q; nothing was run and nothing deleted", errPrefixInUse, it.Val())
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("looking for keys with the prefix %q: %w", prefix, err)
	}
	return nil
}

// cleanUp deletes the keys, by their full names.
func cleanUp(ctx context.Context, rdb *redis.Client, keys []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if err := rdb.Del(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("deleting %q: %w", keys, err)
	}
	return nil
}
