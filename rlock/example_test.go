package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/rlock"
)

// The examples run on an embedded server; yours is
// redis.NewClient(&redis.Options{Addr: "localhost:6379"}).
func exampleClient() (*rlock.Client, func()) {
	server, err := embedded.Start()
	if err != nil {
		panic(err)
	}
	rdb := server.Client()
	client, err := rlock.New(rdb, rlock.Options{})
	if err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close()
		_ = rdb.Close()
		server.Close()
	}
}

func ExampleRLock_Do() {
	client, stop := exampleClient()
	defer stop()
	err := client.NewRLock("order:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("nobody else handles order 42")
		return ctx.Err() // ctx ends if the lock is lost
	})
	fmt.Println(err)
	// Output:
	// nobody else handles order 42
	// <nil>
}

// A nested call re-enters, because it gets the context that is inside the lock.
func ExampleRLock_Do_nested() {
	client, stop := exampleClient()
	defer stop()
	order := client.NewRLock("order:42")
	bill := func(ctx context.Context) error {
		return order.Do(ctx, func(ctx context.Context) error {
			h, _ := order.HoldFrom(ctx)
			fmt.Println("billed at depth", h.Depth())
			return nil
		})
	}
	fmt.Println(order.Do(context.Background(), bill))
	// Output:
	// billed at depth 2
	// <nil>
}

func ExampleRLock_TryLock() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	lock := client.NewRLock("coupon:7")
	h, err := lock.TryLock(ctx, 2*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = lock.TryLock(ctx, 0) // a fresh owner: only a context from h.Context re-enters
	fmt.Println(errors.Is(err, rlock.ErrNotAcquired))
	fmt.Println(h.Unlock(ctx))
	// Output:
	// true
	// <nil>
}

// Work that listens to its context stops when the lock is lost, here because an
// operator takes it away.
func ExampleHold_Context() {
	client, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	lock := client.NewRLock("job")
	h, err := lock.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := h.Context(ctx)
	if _, err := lock.ForceUnlock(ctx); err != nil {
		fmt.Println(err)
	}
	<-work.Done()
	fmt.Println(errors.Is(context.Cause(work), rlock.ErrLost))
	fmt.Println(errors.Is(h.Unlock(ctx), rlock.ErrLost))
	// Output:
	// true
	// true
}
