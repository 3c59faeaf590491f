package script_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/script"
)

// packet is a message on its way: a request, or the answer to one.
type packet struct {
	request
	answer   *outcome
	answered int // tick
}

// walk is one random walk.
type walk struct {
	t       *testing.T
	rng     *rand.Rand
	server  *lockServer
	want    lockState // of the server
	now     int       // tick
	clients []*client
	net     []packet // no order: any may come next, again, or never

	seen  map[string]int // what has happened, so that a walk that met nothing is noticed
	trace []string       // the latest steps
}

func newWalk(t *testing.T, rdb *redis.Client, key string, number uint64) *walk {
	t.Helper()
	seed := *oracleSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	w := &walk{
		t: t, rng: rand.New(rand.NewPCG(seed, number)),
		server: &lockServer{rdb: rdb, key: key},
		want:   lockState{fields: make(map[string]int)}, now: 100,
		clients: []*client{{name: "a"}, {name: "b"}, {name: "c"}}, seen: make(map[string]int),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat it with -oracle.seed=%d; the last steps were:", seed)
			for _, step := range w.trace {
				t.Log(step)
			}
		}
	})
	return w
}

// run makes so many steps and then lets the network and the leases run out.
func (w *walk) run(steps int) {
	for range steps {
		switch n := w.rng.IntN(100); {
		case n < 2:
			w.pass()
		case n < 50:
			w.act()
		default:
			w.arrive()
		}
		w.believe()
		if w.t.Failed() {
			return
		}
	}
	w.settle()
}

// log records a step.
func (w *walk) log(format string, args ...any) {
	const latest = 60
	w.trace = append(w.trace, fmt.Sprintf("%d: ", w.now)+fmt.Sprintf(format, args...))
	w.trace = w.trace[max(len(w.trace)-latest, 0):]
}

// pass lets a tick go by.
func (w *walk) pass() {
	w.now++
	before := len(w.want.fields)
	w.want.pass(w.now)
	if len(w.want.fields) < before {
		w.seen["expired"]++
	}
	w.log("a tick passes")
	if err := w.server.pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.compare()
}

// act lets a client do something.
func (w *walk) act() {
	c := w.clients[w.rng.IntN(len(w.clients))]
	c.forget()
	p := c.pick(w.rng)
	if p == nil {
		w.send(c.start(w.rng, w.now))
		return
	}
	was := p.state
	m, sends := p.act(w.rng, w.now)
	if p.state != was {
		w.log("%s is %s", p.id, p.state)
	}
	if sends {
		w.send(m)
	}
}

// send puts a message on the network.
func (w *walk) send(m request) {
	w.log("%s", m)
	w.net = append(w.net, packet{request: m})
}

func (m request) String() string {
	return fmt.Sprintf("%s sends %s depth %d lease %d deadline %d predecessors %v",
		m.party.id, m.kind, m.depth, m.lease, m.deadline, m.predecessors)
}

// arrive takes any packet: it is delivered or lost, and sometimes stays, to be
// delivered again.
func (w *walk) arrive() {
	if len(w.net) == 0 {
		return
	}
	n := w.rng.IntN(len(w.net))
	if w.rng.IntN(4) > 0 { // mostly one of the latest
		n = max(n, len(w.net)-1-w.rng.IntN(3))
	}
	p := w.net[n]
	if w.rng.IntN(6) > 0 {
		w.net = slices.Delete(w.net, n, n+1)
	} else {
		w.seen["message repeated"]++
	}
	switch {
	case w.rng.IntN(8) == 0:
		w.seen["message lost"]++
		w.log("lost: %s", p.request)
	case p.answer == nil:
		w.execute(p.request)
	default:
		was := p.party.state
		m, sends := p.party.take(p.request, *p.answer, w.now, p.answered)
		w.log("%s gets the answer to %s: %s, was %s", p.party.id, p.kind, p.party.state, was)
		if sends {
			w.send(m)
		}
	}
}

// execute lets the server execute a message and puts its answer on the network.
func (w *walk) execute(m request) {
	_, had := w.want.fields[m.party.id]
	fields := len(w.want.fields)
	want := w.want.execute(m, w.now)
	got, err := w.server.execute(w.t.Context(), m, w.now)
	w.log("executed: %s: %+v", m, got)
	if err != nil || got != want {
		w.t.Errorf("%s: answered %+v, %v; want %+v", m, got, err, want)
		return
	}
	w.compare()
	_, has := w.want.fields[m.party.id]
	if has && !had {
		w.created(m, fields)
	}
	if m.kind != renew {
		m.party.unclear = m.party.unclear || m.seq < m.party.executed
		if m.seq < m.party.executed {
			w.seen["executed out of order"]++
		}
		m.party.executed = max(m.party.executed, m.seq)
	}
	w.count(m, got)
	w.net = append(w.net, packet{request: m, answer: &got, answered: w.now})
}

// created checks that a field may come into being: by an outermost acquire,
// before the deadline of its owner.
func (w *walk) created(m request, fields int) {
	if m.kind != acquire || m.depth != 1 || w.now > m.party.deadline {
		w.t.Errorf("%s created a field; the owner's deadline was %d", m, m.party.deadline)
	}
	if fields > 0 {
		w.seen["predecessor replaced"]++
	}
	if m.party.freed {
		w.seen["copy after its release"]++
	}
}

// count notes what has happened.
func (w *walk) count(m request, got outcome) {
	var name string
	switch m.kind {
	case acquire:
		name = map[script.AcquireCode]string{
			script.Held: "held", script.Granted: "granted", script.Late: "late", script.Lost: "lost",
		}[got.acquired]
		if m.depth > 1 && got.acquired == script.Granted {
			w.seen["re-entry"]++
		}
	case release:
		name = map[script.ReleaseCode]string{
			script.Gone: "gone", script.Released: "released", script.Lowered: "lowered",
		}[got.released]
	case renew:
		name = map[script.RenewCode]string{script.RenewGone: "gone", script.Renewed: "renewed"}[got.renewed]
	}
	w.seen[string(m.kind)+" "+name]++
}

// compare checks the server against what should be there: one owner at most,
// the right one, its count, and a TTL.
func (w *walk) compare() {
	got, err := w.server.state(w.t.Context(), w.now)
	if err != nil {
		w.t.Error(err)
	}
	if !got.equal(w.want) {
		w.t.Errorf("the server has %+v, want %+v", got, w.want)
	}
	if len(got.fields) > 1 {
		w.t.Errorf("two owners: %v", got.fields)
	}
}

// believe checks what the parties believe against the server, whose state was
// compared after it had changed last.
func (w *walk) believe() {
	for _, c := range w.clients {
		for _, p := range c.parties {
			if !p.believes(w.now) {
				continue
			}
			w.seen["belief checked"]++
			n, ok := w.want.fields[p.id]
			if !ok || w.want.expires < p.until {
				w.t.Errorf("%s believes to hold until %d; Redis has %+v", p.id, p.until, w.want)
			}
			if p.op == 0 && !p.unclear && !w.underWay(p) {
				w.seen["count checked"]++
				if n != p.holds {
					w.t.Errorf("%s has %d holds, Redis counts %d", p.id, p.holds, n)
				}
			}
		}
	}
}

// underWay reports whether a request of the party is on the network.
func (w *walk) underWay(p *party) bool {
	return slices.ContainsFunc(w.net, func(other packet) bool { return other.party == p && other.answer == nil })
}

// settle delivers what is left, lets all leases run out, and checks that
// nothing remains and the lock can be had.
func (w *walk) settle() {
	for _, p := range w.net {
		if p.answer == nil {
			w.execute(p.request)
			w.believe()
		}
	}
	for range 10 {
		w.pass()
	}
	if len(w.want.fields) > 0 {
		w.t.Errorf("all leases have run out, and there is %+v", w.want)
	}
	c := &client{name: "new"}
	w.execute(c.start(w.rng, w.now))
	if len(w.want.fields) != 1 {
		w.t.Error("a free lock was not granted")
	}
	w.server.rdb.Del(w.t.Context(), w.server.key)
}
