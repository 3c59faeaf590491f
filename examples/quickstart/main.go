// Quickstart holds a lock on the Redis at localhost:6379 while it works.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

func main() {
	client, err := rlock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), rlock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = client.NewRLock("order:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("no other instance is handling order 42")
		return ctx.Err() // ctx ends if the lock is lost: pass it on to what you call
	})
	if err != nil {
		log.Fatal(err)
	}
}
