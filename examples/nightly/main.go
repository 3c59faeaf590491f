// Nightly is a report job that every instance of a service starts at the same time and exactly one runs.
//
// Start a redis-server, then in two terminals
//
//	go run ./examples/nightly -redis localhost:6379
//
// The second says who is running and ends. An operator takes the lock from an instance that hangs with
//
//	go run ./examples/nightly -redis localhost:6379 -force
//
// upon which that instance stops and says what is half done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// lockName is the same in every instance. It is also the key in Redis.
const lockName = "nightly:report"

func main() {
	addr := flag.String("redis", "localhost:6379", "address of the Redis server")
	force := flag.Bool("force", false, "take the lock away from the running instance, and end")
	flag.Parse()

	err := run(*addr, *force)
	switch {
	case err == nil:
		log.Print("done")
	case errors.Is(err, rlock.ErrNotAcquired):
		log.Print(err) // as it should be: the report is in good hands
	default:
		log.Fatal(err)
	}
}

// run connects to Redis and does what the flags say, until Ctrl-C.
func run(addr string, force bool) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	client, err := rlock.New(rdb, rlock.Options{})
	if err != nil {
		return fmt.Errorf("options of the lock client: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }() // no hold is open by now; before rdb.Close

	job := &Job{
		Lock: client.NewRLock(lockName),
		Steps: []Step{
			{Name: "collect", Work: pages(3)},
			{Name: "render", Work: pages(20)},
			{Name: "send", Work: pages(3)},
		},
		Logf: log.Printf,
	}
	if force {
		return job.Force(ctx)
	}
	return job.Run(ctx)
}

// pages stands for the work of a step: n pages of a second each, which end when ctx does.
func pages(n int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range n {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
}
