package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/redis/go-redis/v9"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell says after SIGINT
)

// program is the command, with what differs between a real run and a test.
type program struct {
	stdout, stderr io.Writer
	terminal       bool // stderr is one: show the progress there
	strategies     []strategy
	prefix         string // of all keys; no character of it means something in a pattern
}

// run does what the arguments say and returns the exit code. The end of ctx
// interrupts the run.
func (p program) run(ctx context.Context, args []string) int {
	cfg, err := parseFlags(args, p.stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		writef(p.stderr, "bench: %v\n", err)
		return exitUsage
	case cfg.list:
		p.list()
		return exitOK
	}
	r, err := p.measure(ctx, cfg)
	if err != nil {
		writef(p.stderr, "bench: %v\n", err)
	}
	switch {
	case r != nil && !r.OK:
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return exitFailed
	}
	return exitOK
}

// list says what is compared and how the lock is loaded meanwhile.
func (p program) list() {
	writef(p.stdout, "Strategies\n")
	for _, s := range p.strategies {
		writef(p.stdout, "  %-10s %s\n", s.name(), s.about())
	}
	writef(p.stdout, "Shapes\n")
	for _, s := range standardShapes() {
		writef(p.stdout, "  %-10s %s\n  %-10s %s\n", s.name, s.about, "", s.load())
	}
}

// measure runs the comparison and writes the report. The report is nil if it
// never came to that; the error is what went wrong besides the strategies.
func (p program) measure(ctx context.Context, cfg config) (r *report, err error) {
	t, err := openTarget(ctx, cfg.redis)
	if err != nil {
		return nil, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = errors.Join(err, t.stop(stop))
	}()
	rdb := redis.NewClient(t.options())
	defer func() { err = errors.Join(err, rdb.Close()) }()

	r = &report{Schema: 1, Host: thisHost(), Server: server{Kind: t.kind}}
	if r.Server.Version, err = t.version(ctx, rdb); err != nil {
		return nil, err
	}
	if err := claim(ctx, rdb, p.prefix); err != nil {
		return nil, err
	}
	failed := p.contest(ctx, cfg, t, rdb, r)
	r.write(p.stdout)
	if cfg.json != "" {
		failed = errors.Join(failed, r.writeJSON(cfg.json))
	}
	return r, failed
}

// contest lets the strategies compete and puts their figures into the report. It
// leaves no key and no client behind; its error says what of that failed.
func (p program) contest(ctx context.Context, cfg config, t *target, rdb *redis.Client, r *report) error {
	c := &contest{cfg: cfg, progress: &progress{}}
	if p.terminal {
		c.progress.out = p.stderr
	}
	if c.enterAll(ctx, p.strategies, t, p.prefix) {
		c.run(ctx)
	}
	r.Interrupted, r.OK = ctx.Err() != nil, true
	for _, in := range cfg.shapes {
		results := c.resultsIn(in)
		r.OK = r.OK && ok(results)
		r.Shapes = append(r.Shapes, shapeReportOf(in, cfg, results))
	}
	return errors.Join(c.close(), cleanUp(ctx, rdb, c.keys()))
}
