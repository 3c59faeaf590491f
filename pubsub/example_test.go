package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

// Waiting for a job without polling: the queue is the truth, and a message on
// the channel only says when to look. The worker looks once after Subscribe,
// and once after each wake.
func Example() {
	server, err := miniredis.Run() // In a program: your Redis.
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	hub, err := pubsub.New(rdb, pubsub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hub.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { // Somebody else, some time.
		rdb.LPush(ctx, "jobs", "paint the fence")
		rdb.Publish(ctx, "jobs:new", "")
	}()

	job, err := nextJob(ctx, rdb, hub)
	fmt.Println(job, err)
	// Output: paint the fence <nil>
}

func nextJob(ctx context.Context, rdb *redis.Client, hub *pubsub.Hub) (string, error) {
	sub, err := hub.Subscribe(ctx, "jobs:new")
	if err != nil {
		return "", err
	}
	defer sub.Close()
	for {
		job, err := rdb.RPop(ctx, "jobs").Result()
		if !errors.Is(err, redis.Nil) {
			return job, err
		}
		if err := sub.Err(); err != nil {
			return "", err
		}
		select {
		case <-sub.Wake():
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
