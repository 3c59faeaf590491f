//go:build scenarios

package scenarios_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/rlock"
)

// What a helper process is told by its environment.
const (
	programEnv = "LATCHKEY_SCENARIO_PROGRAM" // which of programs it is
	serverEnv  = "LATCHKEY_SCENARIO_SERVER"  // host:port of Redis
	leaseEnv   = "LATCHKEY_SCENARIO_LEASE"   // Options.Lease of its client
)

// programs are what the test binary can be started as. A test adds its own:
//
//	var _ = addProgram("name", func(p *program) error { ... })
var programs = map[string]func(*program) error{}

var _ = addProgram("holder", holder)

func addProgram(name string, run func(*program) error) bool { //nolint:unparam // a variable is initialised with it
	programs[name] = run
	return true
}

// program is the inside of a helper process. It is told what to do by lines on
// its standard input, and ends with that.
type program struct {
	rdb    *redis.Client
	client *rlock.Client
	lines  *bufio.Scanner
}

// say sends a line to the test.
func (*program) say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

// runProgram is the helper process, if this is one; then it does not return.
func runProgram() {
	name := os.Getenv(programEnv)
	if name == "" {
		return
	}
	if err := startProgram(name); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "helper process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func startProgram(name string) error {
	run, ok := programs[name]
	if !ok {
		return fmt.Errorf("no program %q", name)
	}
	lease, err := time.ParseDuration(os.Getenv(leaseEnv))
	if err != nil {
		return fmt.Errorf("%s: %w", leaseEnv, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(serverEnv)})
	defer func() { _ = rdb.Close() }()
	client, err := rlock.New(rdb, rlock.Options{Lease: lease})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return run(&program{rdb: rdb, client: client, lines: bufio.NewScanner(os.Stdin)})
}

// holder is the program that most tests need. Its lines, and its answers:
//
//	lock NAME     held OWNER AT | failed TEXT
//	unlock NAME   ok | lost | not-held | failed TEXT
//	look NAME     held | lost | not-held
//	close         ok (Client.Close)
//
// AT is when Lock returned, in nanoseconds of the Unix clock.
func holder(p *program) error {
	holds := make(map[string]*rlock.Hold)
	for p.lines.Scan() {
		word, name, _ := strings.Cut(p.lines.Text(), " ")
		switch word {
		case "lock":
			h, err := p.client.NewRLock(name).Lock(context.Background())
			if err != nil {
				p.say("failed", err)
				continue
			}
			holds[name] = h
			p.say("held", h.Owner(), time.Now().UnixNano())
		case "unlock":
			p.say(stateOf(holds[name].Unlock(context.Background()), "ok"))
		case "look":
			p.say(stateOf(holds[name].Err(), "held"))
		case "close":
			p.say(stateOf(p.client.Close(), "ok"))
		default:
			return fmt.Errorf("no such line: %q", p.lines.Text())
		}
	}
	return p.lines.Err()
}

// stateOf names what an error says of a hold.
func stateOf(err error, none string) string {
	switch {
	case err == nil:
		return none
	case errors.Is(err, rlock.ErrLost):
		return "lost"
	case errors.Is(err, rlock.ErrNotHeld):
		return "not-held"
	}
	return "failed " + err.Error()
}

// process is a helper process as the test sees it. It is killed at the end of
// the test, paused or not.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string // what it says; closed when it says nothing more
	ended chan error  // what it came to, once
}

// start runs the test binary as one of programs, against the server at addr,
// with this lease.
func start(t *testing.T, name, addr string, lease time.Duration) *process {
	t.Helper()
	p := &process{t: t, lines: make(chan string, 64), ended: make(chan error, 1)}
	// Not the test's context: its end would come before the cleanup.
	p.cmd = exec.CommandContext(context.Background(), os.Args[0])
	p.cmd.Env = append(os.Environ(), programEnv+"="+name, serverEnv+"="+addr, leaseEnv+"="+lease.String())
	p.cmd.Stderr = os.Stderr
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for said := bufio.NewScanner(output); said.Scan(); {
			p.lines <- said.Text()
		}
		close(p.lines)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as a crash would and returns when it is gone. A second
// call does nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it is gone
	for range p.lines {
		continue
	}
	p.ended <- <-p.ended
}

// tell sends a line to the process.
func (p *process) tell(words ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.input, words...); err != nil {
		p.t.Fatalf("telling the helper process: %v", err)
	}
}

// hear returns the next line of the process, in words.
func (p *process) hear() []string {
	p.t.Helper()
	line := await(p.t, p.lines, stuck, "the helper process says something")
	words := strings.Fields(line)
	if len(words) == 0 {
		p.t.Fatal("the helper process has ended")
	}
	return words
}

// ask tells the process something and returns its answer.
func (p *process) ask(words ...any) []string {
	p.t.Helper()
	p.tell(words...)
	return p.hear()
}

// mustLock lets a holder process lock a name and returns the owner and the
// time at which it had it.
func (p *process) mustLock(name string) (owner string, at time.Time) {
	p.t.Helper()
	got := p.ask("lock", name)
	if len(got) != 3 || got[0] != "held" {
		p.t.Fatalf("the holder process said %q", got)
	}
	ns, err := strconv.ParseInt(got[2], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return got[1], time.Unix(0, ns)
}
