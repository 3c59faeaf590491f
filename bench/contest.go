package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// contestant is one strategy in one shape, with its clients and what they did.
type contestant struct {
	strategy strategy
	shape    shape
	key      string
	clients  []*redis.Client
	lockers  []locker
	commands *commandCounter
	tally    tally
}

// enter opens a strategy's clients and lets each take the lock once, so that
// connections and scripts are there when the clock runs. Close the contestant
// also after an error.
func enter(ctx context.Context, s strategy, in shape, t *target, key string, with settings) (*contestant, error) {
	c := &contestant{
		strategy: s, shape: in, key: key,
		commands: newCommandCounter(), tally: newTally(in.clients * in.goroutines),
	}
	for range in.clients {
		opts := t.options()
		c.commands.watch(opts)
		rdb := redis.NewClient(opts)
		c.clients = append(c.clients, rdb)
		l, err := s.open(rdb, key, with)
		if err != nil {
			return c, err
		}
		c.lockers = append(c.lockers, l)
		switch err := warmUp(ctx, l); {
		case errors.Is(err, errLost):
			c.tally.lost++ // as in a round
		case err != nil:
			return c, fmt.Errorf("warming up: %w", err)
		}
	}
	return c, nil
}

func warmUp(ctx context.Context, l locker) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// close ends the clients. Nobody locks any more.
func (c *contestant) close() error {
	var errs []error
	for _, l := range c.lockers {
		errs = append(errs, l.close())
	}
	for _, rdb := range c.clients {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// contest is the whole comparison.
type contest struct {
	cfg         config
	contestants []*contestant
	progress    *progress
}

// enterAll opens the strategies in each shape. It returns false if one failed,
// which its tally then says, or if ctx ended.
func (c *contest) enterAll(ctx context.Context, all []strategy, t *target, prefix string) bool {
	for _, in := range c.cfg.shapes {
		for _, s := range all {
			key := prefix + in.name + ":" + s.name()
			who, err := enter(ctx, s, in, t, key, settings{poll: c.cfg.poll})
			c.contestants = append(c.contestants, who)
			if err != nil {
				who.failed(ctx, err)
				return false
			}
		}
	}
	return ctx.Err() == nil
}

// run lets the contestants take rounds in turn, until all are done, one fails,
// which its tally then says, or ctx ends.
func (c *contest) run(ctx context.Context) {
	each := c.cfg.inShape() / rounds
	c.progress.expect(each * time.Duration(rounds*len(c.contestants)))
	defer c.progress.done()
	for n := range rounds {
		for _, who := range c.contestants {
			if ctx.Err() != nil {
				return
			}
			c.progress.begin(fmt.Sprintf("round %d/%d  %s: %s", n+1, rounds, who.shape.name, who.strategy.name()), each)
			if err := playRound(ctx, who, each, c.progress); err != nil {
				who.failed(ctx, err)
				return
			}
		}
	}
}

// resultsIn returns the figures of the strategies that entered in a shape.
func (c *contest) resultsIn(in shape) []summary {
	var results []summary
	for _, who := range c.contestants {
		if who.shape == in {
			results = append(results, who.tally.summarise(who.strategy.name()))
		}
	}
	return results
}

// close ends all clients. Nobody locks any more.
func (c *contest) close() error {
	var errs []error
	for _, who := range c.contestants {
		errs = append(errs, who.close())
	}
	return errors.Join(errs...)
}

// keys returns the names of all locks.
func (c *contest) keys() []string {
	var keys []string
	for _, who := range c.contestants {
		keys = append(keys, who.key)
	}
	return keys
}

// failed records what ended the run; nothing if that was an interrupt.
func (c *contestant) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.tally.failure = err
	}
}
