package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What -redis takes besides a URL.
const (
	redisAuto     = "auto"
	redisEmbedded = "embedded"
	redisSpawn    = "spawn"
)

// config is what the flags say.
type config struct {
	redis    string
	shapes   []shape
	duration time.Duration // measured for each strategy, over all shapes and rounds
	poll     time.Duration
	json     string // a file, or ""
	list     bool
}

const (
	fullDuration  = 7 * time.Second
	quickDuration = 2 * time.Second

	// rounds is how many each strategy has in each shape: two show a disturbance,
	// and more would be so short that they cut off the waits that matter.
	rounds = 2
)

// inShape is what each strategy is measured for in each shape.
func (c *config) inShape() time.Duration { return c.duration / time.Duration(len(c.shapes)) }

// parseFlags reads the arguments. Its error names the flag and the remedy;
// flag.ErrHelp means that the usage was asked for and has been written to out.
func parseFlags(args []string, out io.Writer) (config, error) {
	cfg := config{shapes: standardShapes(), poll: 100 * time.Millisecond}
	custom := cfg.shapes[0]
	var quick bool
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.redis, "redis", redisAuto, "`SERVER`: auto, embedded, spawn, or a URL (auto: spawn if redis-server is on PATH)")
	fs.Func("duration", "`TIME` measured for each strategy, shared by the shapes (default 7s, with -quick 2s)",
		durationFlag(&cfg.duration, 50*time.Millisecond, time.Hour, "7s"))
	fs.Func("clients", "`N` clients, as if in so many processes (default 4) (*)", countFlag(&custom.clients, 100))
	fs.Func("goroutines", "`N` goroutines in each client (default 4) (*)", countFlag(&custom.goroutines, 1000))
	fs.Func("work", "`TIME` spent inside the lock (default 1ms) (*)", durationFlag(&custom.work, 0, 10*time.Second, "1ms"))
	fs.Func("pause", "`TIME`: after a turn each goroutine does something else for 0 to TIME (default 10ms) (*)",
		durationFlag(&custom.pause, 0, 10*time.Second, "10ms"))
	fs.Func("poll", "`TIME` that polling sleeps between attempts (default 100ms)",
		durationFlag(&cfg.poll, time.Millisecond, time.Minute, "100ms"))
	fs.BoolVar(&quick, "quick", false, "about 5 s in all: shorter rounds")
	fs.StringVar(&cfg.json, "json", "", "write the figures to `FILE` too (a relative one is in bench/ with go -C bench)")
	fs.BoolVar(&cfg.list, "list", false, "list the strategies and the shapes, and stop")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(fs, out)
			return cfg, err
		}
		return cfg, fmt.Errorf("%w (all flags: -h)", err)
	}
	if loadGiven(fs) {
		custom.name, custom.about = customShape, "as the flags say"
		cfg.shapes = []shape{custom}
	}
	switch {
	case cfg.duration > 0:
	case quick:
		cfg.duration = quickDuration
	default:
		cfg.duration = fullDuration
	}
	return cfg, cfg.check(fs.Args())
}

// loadGiven tells whether one of the flags that describe a shape was given.
func loadGiven(fs *flag.FlagSet) bool {
	given := false
	fs.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "clients", "goroutines", "work", "pause":
			given = true
		}
	})
	return given
}

// check looks at what the flags cannot check one by one. Its errors do not show
// the value of -redis, which may hold a password.
func (c *config) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q: everything is a flag, all flags: -h", rest[0])
	}
	switch c.redis {
	case redisAuto, redisEmbedded, redisSpawn:
	default:
		if _, err := redis.ParseURL(c.redis); err != nil {
			return errors.New("the value of -redis is neither auto, embedded or spawn nor a URL of Redis: " +
				"give one such as redis://127.0.0.1:6379/0")
		}
	}
	if c.json == "" {
		return nil
	}
	return checkFile(c.json)
}

// checkFile finds out before the run that its result could not be written.
func checkFile(path string) error {
	dir := filepath.Dir(path)
	if at, err := os.Stat(dir); err != nil || !at.IsDir() {
		return fmt.Errorf("-json %s: there is no folder %s: make it, or give another file", path, dir)
	}
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		return fmt.Errorf("-json %s is a folder: give the name of a file", path)
	}
	return nil
}

func durationFlag(to *time.Duration, least, most time.Duration, example string) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return fmt.Errorf("give a number with a unit, such as %s", example)
		case d < least || d > most:
			return fmt.Errorf("give a time from %v to %v, such as %s", least, most, example)
		}
		*to = d
		return nil
	}
}

func countFlag(to *int, most int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("give a whole number from 1 to %d", most)
		}
		*to = n
		return nil
	}
}

// usage writes all flags.
func usage(fs *flag.FlagSet, out io.Writer) {
	writef(out, "Compares ways to take turns under one lock on a Redis server.\n\n  go -C bench run . [flags]\n\n")
	fs.VisitAll(func(f *flag.Flag) {
		value, _ := flag.UnquoteUsage(f)
		text := strings.ReplaceAll(f.Usage, "`", "")
		writef(out, "  %-17s %s\n", strings.TrimSpace("-"+f.Name+" "+value), text)
	})
	writef(out, "\n(*) Without any of these the shapes of -list are measured; with one of them, one shape as given.\n")
}
