// Stock is a small shop's stock as an HTTP service: several instances of it
// deduct from the same numbers in Redis, by a GET and a SET that are right only
// because one instance at a time does them.
//
// It shows
//   - a wait with a bound, and what to answer when it runs out (http.go);
//   - a lock that is re-entered by a function that takes it itself, and work
//     under the lock that a customer who hangs up does not cut (stock.go);
//   - how a lost lock, a busy one, a client that goes and a failing Redis are
//     told apart, and which of them may be tried again (http.go);
//   - the order in which a service ends (serve in this file);
//   - tests with a real server, with instances in processes of their own, and
//     with the test kit in a bubble where time costs nothing (the tests).
//
// Start a redis-server, then an instance or more, each on a port of its own:
//
//	go run ./examples/stock -redis localhost:6379
//	go run ./examples/stock -redis localhost:6379 -addr 127.0.0.1:8081 -hold 5s
//
// and be a customer:
//
//	curl -X PUT  'http://127.0.0.1:8080/stock/apple?n=100'
//	curl -X POST 'http://127.0.0.1:8080/stock/apple/reserve?n=2&for=ann'
//	curl         'http://127.0.0.1:8080/stock/apple'
//
// With -hold there is time to stop or kill an instance inside the lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

func main() {
	c, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil { // the flag set has printed it
		os.Exit(2)
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, c, logger)
	stop()
	if err != nil {
		logger.Error("the service failed", slog.Any("err", err))
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	addr, redis        string
	lease, hold, grace time.Duration
}

func parse(args []string) (config, error) {
	var c config
	fl := flag.NewFlagSet("stock", flag.ContinueOnError)
	fl.StringVar(&c.addr, "addr", "127.0.0.1:8080", "where to serve HTTP")
	fl.StringVar(&c.redis, "redis", "localhost:6379", "where Redis is")
	fl.DurationVar(&c.lease, "lease", 10*time.Second, "how long a dead instance blocks an item")
	fl.DurationVar(&c.hold, "hold", 0, "pause between GET and SET, to play with")
	fl.DurationVar(&c.grace, "grace", 10*time.Second, "how long to wait for open requests at the end")
	return c, fl.Parse(args)
}

// run serves until ctx ends.
func run(ctx context.Context, c config, logger *slog.Logger) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: c.redis})
	defer func() { err = errors.Join(err, rdb.Close()) }() // after the lock client
	//nolint:contextcheck // New does no I/O; the client outlives ctx, so that open requests can finish
	locks, err := rlock.New(rdb, rlock.Options{Lease: c.lease, Logger: logger})
	if err != nil {
		return err
	}
	// After serve's Shutdown this does nothing. What is still inside sees ErrLost.
	defer func() { err = errors.Join(err, locks.Close()) }()

	s := &Stock{rdb: rdb, locks: locks, wait: 2 * time.Second, work: 30 * time.Second}
	if c.hold > 0 {
		s.beforeWrite = pause(c.hold)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	fmt.Println("serving", l.Addr())
	err = serve(ctx, l, Handler(s, logger), locks, c.grace)
	fmt.Println("stopped")
	return err
}

// serve answers requests until ctx ends and then waits for the open ones, at
// most for grace.
func serve(
	ctx context.Context, l net.Listener, h http.Handler, locks *rlock.Client, grace time.Duration,
) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with srv
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	// Both at once: the server takes no new connections, requests that wait for a
	// lock are told that this instance goes (ErrClosed), and those inside finish.
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	locked := make(chan error, 1)
	go func() { locked <- locks.Shutdown(bound) }()
	err := srv.Shutdown(bound)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return errors.Join(err, <-locked)
}

// pause returns a hook that says where it is and waits for d or for the loss
// of the lock.
func pause(d time.Duration) func(ctx context.Context, item string) {
	return func(ctx context.Context, item string) {
		fmt.Println("inside", item)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}
