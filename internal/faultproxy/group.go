package faultproxy

// Direction is one way through the proxy.
type Direction uint8

// The two directions; they can be combined with |.
const (
	Upstream   Direction = 1 << iota // from the client to the server
	Downstream                       // from the server to the client
)

// holes says which directions are black holes, for connections that carry
// commands and for those that have subscribed.
type holes struct {
	commands, subscriptions Direction
	changed                 chan struct{} // closed at the next change
}

// Group is a part of the proxy's connections. A connection belongs to the
// subscriptions from the first SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE that it
// sends, that request included, and to the commands until then.
type Group struct {
	proxy                   *Proxy
	commands, subscriptions bool
}

// Commands is the group of connections that have not subscribed.
func (p *Proxy) Commands() Group { return Group{proxy: p, commands: true} }

// Subscriptions is the group of connections that have subscribed.
func (p *Proxy) Subscriptions() Group { return Group{proxy: p, subscriptions: true} }

func (p *Proxy) all() Group { return Group{proxy: p, commands: true, subscriptions: true} }

// Blackhole is Group.Blackhole for all connections.
func (p *Proxy) Blackhole(dirs ...Direction) { p.all().Blackhole(dirs...) }

// Heal is Group.Heal for all connections.
func (p *Proxy) Heal() { p.all().Heal() }

// KillConnections is Group.Kill for all connections.
func (p *Proxy) KillConnections() int { return p.all().Kill() }

// Blackhole loses, from now on, everything in the given directions (both, when
// none is given), on present and later connections. They stay open, and neither
// side hears that the other one has closed. What a rule is delaying or holding
// is lost too if its time comes before Heal.
func (g Group) Blackhole(dirs ...Direction) {
	var sum Direction
	for _, d := range dirs {
		sum |= d
	}
	if len(dirs) == 0 {
		sum = Upstream | Downstream
	}
	g.proxy.dig(func(h *holes) {
		if g.commands {
			h.commands |= sum
		}
		if g.subscriptions {
			h.subscriptions |= sum
		}
	})
}

// Heal ends the black hole. A connection that has lost something in a direction
// stays silent in it until it is closed, since TCP would not go on behind a gap;
// the others and new ones work.
func (g Group) Heal() {
	g.proxy.dig(func(h *holes) {
		if g.commands {
			h.commands = 0
		}
		if g.subscriptions {
			h.subscriptions = 0
		}
	})
}

// Kill resets (RST) the connections on both sides and returns how many there
// were. New ones work.
func (g Group) Kill() int {
	conns := g.members()
	for _, c := range conns {
		c.reset()
	}
	return len(conns)
}

// Count is how many connections there are, those included whose client or server
// has gone without the other side's knowledge.
func (g Group) Count() int { return len(g.members()) }

func (g Group) members() []*conn {
	g.proxy.mu.Lock()
	defer g.proxy.mu.Unlock()
	var list []*conn
	for c := range g.proxy.conns {
		if sub := c.subscription.Load(); sub && g.subscriptions || !sub && g.commands {
			list = append(list, c)
		}
	}
	return list
}

// dig changes the holes and wakes who waits for a change.
func (p *Proxy) dig(change func(*holes)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.holes)
	close(p.holes.changed)
	p.holes.changed = make(chan struct{})
}

// hole tells whether a direction is lost at present, and gives a channel that is
// closed when that may have changed.
func (c *conn) hole(d Direction) (lost bool, changed <-chan struct{}) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	dirs := p.holes.commands
	if c.subscription.Load() {
		dirs = p.holes.subscriptions
	}
	return dirs&d != 0, p.holes.changed
}

func (c *conn) inHole(d Direction) bool {
	lost, _ := c.hole(d)
	return lost
}
