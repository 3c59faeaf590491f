package rlock_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

// command is one command that a client sent.
type command struct {
	at   time.Duration // since the start of the test
	what string        // acquire, release, renew, info; else the command's name
	args []string      // what follows: of a script its keys, then its arguments
}

func (c command) String() string { return fmt.Sprintf("%v %s %v", c.at, c.what, c.args) }

// owner returns the owner id of a script of one key.
func (c command) owner() string { return c.args[1] }

// fate is what a fault does to the commands that it takes.
type fate int

const (
	holdRequest fate = iota // it does not reach the server until the fault is lifted
	holdReply               // the server executes it; what it sends on this connection waits
	cut                     // the connection breaks before the server gets it
	cutReply                // the server executes it, and the connection breaks
	answered                // the server does not get it, and an answer is made up
)

// fault is a disturbance of a network, until it is lifted or dropped.
type fault struct {
	n      *network
	fate   fate
	takes  func(command) bool
	left   int // commands that it still takes; negative: all
	answer string
	lifted chan struct{}
	lost   bool // what it held is lost; set before lifted is closed
}

// network connects one go-redis client with the server. Commands are logged,
// and faults may take them. It keeps what is under way as real networks do: a
// client that has gone does not call back what it sent.
type network struct {
	r     *rig
	ended chan struct{}

	mu      sync.Mutex
	log     []command
	faults  []*fault
	links   map[*link]bool
	refusal error
	latency time.Duration // of the replies
}

func newNetwork(r *rig) *network {
	return &network{r: r, ended: make(chan struct{}), links: make(map[*link]bool)}
}

// disturb lets a fault take all commands of these kinds, of all kinds if none is
// given, until it is lifted or dropped.
func (n *network) disturb(f fate, whats ...string) *fault { return n.disturbNext(-1, f, whats...) }

// disturbNext is disturb for a number of commands.
func (n *network) disturbNext(count int, f fate, whats ...string) *fault {
	ft := &fault{n: n, fate: f, left: count, lifted: make(chan struct{})}
	ft.takes = func(c command) bool { return len(whats) == 0 || slices.Contains(whats, c.what) }
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, ft)
	return ft
}

// answerWith lets the network answer commands of a kind in the server's place.
func (n *network) answerWith(count int, reply, what string) *fault {
	ft := n.disturbNext(count, answered, what)
	n.mu.Lock()
	defer n.mu.Unlock()
	ft.answer = reply
	return ft
}

// lift ends the fault; what it held goes on its way.
func (f *fault) lift() { f.end(false) }

// drop ends the fault; what it held is lost, and the connections break.
func (f *fault) drop() { f.end(true) }

func (f *fault) end(lost bool) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.faults = slices.DeleteFunc(f.n.faults, func(other *fault) bool { return other == f })
	select {
	case <-f.lifted:
	default:
		f.lost = lost
		close(f.lifted)
	}
}

// pass waits for the end of the fault, and reports whether what it held goes on.
func (f *fault) pass() bool {
	select {
	case <-f.lifted:
		return !f.lost
	case <-f.n.ended:
		return false
	}
}

// heal drops all faults.
func (n *network) heal() {
	n.refuse(nil)
	n.mu.Lock()
	faults := slices.Clone(n.faults)
	n.mu.Unlock()
	for _, f := range faults {
		f.drop()
	}
}

// refuse lets new connections fail with err.
func (n *network) refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = err
}

// delay lets each reply take d from now on.
func (n *network) delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = d
}

// travel lets the time of a reply pass.
func (n *network) travel() {
	n.mu.Lock()
	d := n.latency
	n.mu.Unlock()
	if d == 0 {
		return // see rig.pass
	}
	select {
	case <-time.After(d):
	case <-n.ended:
	}
}

// cutSubscribers breaks the connections that have sent SUBSCRIBE.
func (n *network) cutSubscribers() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l, subscriber := range n.links {
		if subscriber {
			l.close()
		}
	}
}

// subscribers returns how many connections have sent SUBSCRIBE.
func (n *network) subscribers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, subscriber := range n.links {
		if subscriber {
			count++
		}
	}
	return count
}

// sent returns the commands of these kinds that were sent since the last
// forget, of all kinds if none is given.
func (n *network) sent(whats ...string) []command {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []command
	for _, c := range n.log {
		if len(whats) == 0 || slices.Contains(whats, c.what) {
			found = append(found, c)
		}
	}
	return found
}

// times returns when commands of these kinds were sent since the last forget.
func (n *network) times(whats ...string) []time.Duration {
	var at []time.Duration
	for _, c := range n.sent(whats...) {
		at = append(at, c.at)
	}
	return at
}

// forget empties the log.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = nil
}

// close breaks all connections, and ends the goroutines of the network.
func (n *network) close() {
	close(n.ended)
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		l.close()
	}
}

// take logs a command and returns the fault that takes it, nil if none does.
func (n *network) take(l *link, args []string) *fault {
	c := describe(args)
	c.at = n.r.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.what == "subscribe" {
		n.links[l] = true
	}
	if c.what != "hello" && c.what != "client" {
		n.log = append(n.log, c)
	}
	for _, f := range n.faults {
		if f.left != 0 && f.takes(c) {
			f.left--
			return f
		}
	}
	return nil
}

// describe tells the library's scripts from one another.
func describe(args []string) command {
	name := strings.ToLower(args[0])
	if (name != "evalsha" && name != "eval") || len(args) < 3 {
		return command{what: name, args: args[1:]}
	}
	for what, s := range map[string]*script.Script{
		"acquire": script.AcquireScript, "release": script.ReleaseScript,
		"renew": script.RenewScript, "info": script.InfoScript,
	} {
		if args[1] == s.SHA() || args[1] == s.Source() {
			return command{what: what, args: args[3:]}
		}
	}
	return command{what: name, args: args[1:]}
}
