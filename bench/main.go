// Command bench compares ways to take turns under one lock on a Redis server:
// the polling recipe that people write first, and Latchkey.
//
//	go -C bench run .            about 15 s, on a redis-server of its own
//	go -C bench run . -quick     about 5 s
//	go -C bench run . -h         all flags
//
// Nothing has to be installed: without a redis-server on the PATH it runs on
// miniredis, inside its own process, and says so.
//
// Several clients, each with a go-redis client of its own, have several
// goroutines each, and all of them want the same name. That is measured in two
// shapes:
//
//   - requests: after a turn a goroutine does something else for 0 to 10 ms. Most
//     services are like that: each acquisition is for another request.
//   - loop: no pause. The goroutine that releases wants the lock again at once and,
//     without turn-taking, has it again before anybody else has woken.
//
// One of -clients, -goroutines, -work and -pause makes it one shape, as given.
// The strategies take rounds in turn, so that a machine that is busy for a moment
// is not held against one of them. The first thing printed is a verdict in words
// for each shape, computed from what was measured; it may go either way.
//
// Every critical section is watched: two that overlap, an update that is lost,
// or a lock that was gone when its holder released it fail the run.
//
// Exit status: 0 for a run without a violation, 1 for one that failed, 2 for bad
// flags, 130 after SIGINT or SIGTERM. (go run reports any but 0 as 1.)
//
// On a server that others use, it works under a random prefix of its own,
// refuses to run if that prefix is in use, and deletes no other key.
package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"golang.org/x/term"
)

func main() { os.Exit(start()) }

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the run in order, a second one at once.
	context.AfterFunc(ctx, stop)
	redis.SetLogger(logger(func(format string, args ...any) {
		if ctx.Err() == nil { // clients that are closed in the middle of their work complain
			writef(os.Stderr, "redis: "+format+"\n", args...)
		}
	}))
	p := program{
		stdout: os.Stdout, stderr: os.Stderr,
		terminal:   term.IsTerminal(int(os.Stderr.Fd())),
		strategies: allStrategies(),
		prefix:     "latchkey-bench:" + rand.Text() + ":",
	}
	return p.run(ctx, os.Args[1:])
}

// logger receives what go-redis logs.
type logger func(format string, args ...any)

// Printf implements go-redis' logging interface.
func (l logger) Printf(_ context.Context, format string, args ...any) { l(format, args...) }
