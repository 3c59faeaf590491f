package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// verdict is what becomes of a request or reply after a rule has acted.
type verdict int

const (
	pass verdict = iota // it goes on
	lose                // it is lost, and what follows it in its direction too
	over                // the connection has ended
)

// signals bounds how many fires can wait to be received.
const signals = 1024

// Match is a choice of requests that waits to be told what happens to them. Each
// of its methods makes a rule, which is in force when the method returns and
// until Remove. Several rules may act on one request, in the order in which they
// were made.
type Match struct {
	proxy  *Proxy
	match  Matcher
	limits []Limit
}

// Rule is a fault in force. Its methods are safe for concurrent use.
type Rule struct {
	proxy *Proxy
	match Matcher

	first, last int // at which matches it acts; a last of -1 has no end
	seen        int // matches so far; guarded by proxy.mu

	// One of these says what it does; none means that it only counts.
	onRequest func(*conn) verdict
	onReply   func(*conn) verdict
	answer    string // sent to the client in place of the request's reply

	hits  atomic.Int64
	fired chan struct{}
}

// On chooses the requests that match, within the limits.
func (p *Proxy) On(m Matcher, limits ...Limit) *Match {
	return &Match{proxy: p, match: m, limits: limits}
}

// Count does nothing to the requests but count them.
func (m *Match) Count() *Rule { return m.add(&Rule{}) }

// DelayRequest keeps each request, and those behind it on its connection, for d.
func (m *Match) DelayRequest(d time.Duration) *Rule {
	return m.add(&Rule{onRequest: func(c *conn) verdict { return c.sleep(d) }})
}

// DropRequest loses the request: the server never gets it, nor anything that the
// client sends later on that connection.
func (m *Match) DropRequest() *Rule {
	return m.add(&Rule{onRequest: func(*conn) verdict { return lose }})
}

// Reset resets the connection (RST) in place of passing the request on.
func (m *Match) Reset() *Rule {
	return m.add(&Rule{onRequest: (*conn).reset})
}

// ReplyError answers with an error in place of the server, which never gets the
// request. The text begins with the error's code: "READONLY You can't ...".
func (m *Match) ReplyError(text string) *Rule {
	return m.add(&Rule{answer: "-" + text + "\r\n"})
}

// SwallowReply lets the server execute the request and loses the reply, as well
// as everything that the server sends later on that connection.
func (m *Match) SwallowReply() *Rule {
	return m.add(&Rule{onReply: func(*conn) verdict { return lose }})
}

// DelayReply keeps each reply, and what the server sends after it on its
// connection, for d.
func (m *Match) DelayReply(d time.Duration) *Rule {
	return m.add(&Rule{onReply: func(c *conn) verdict { return c.sleep(d) }})
}

// ResetAfterExecution resets the connection (RST) in place of passing the reply
// on: the request has been executed.
func (m *Match) ResetAfterExecution() *Rule {
	return m.add(&Rule{onReply: (*conn).reset})
}

// Held is a rule that keeps requests or replies until Release.
type Held struct {
	*Rule
	once     sync.Once
	released chan struct{}
}

// Release lets everything that is held go on, and holds nothing from then on. A
// second call does nothing.
func (h *Held) Release() { h.once.Do(func() { close(h.released) }) }

// Hold keeps the replies, and what the server sends after them on their
// connections, until Release. When it has fired, the server has executed the
// request.
func (m *Match) Hold() *Held {
	h := &Held{released: make(chan struct{})}
	h.Rule = m.add(&Rule{onReply: func(c *conn) verdict { return c.wait(h.released) }})
	return h
}

// HoldRequest keeps the requests, and those behind them on their connections,
// until Release, even when the client has closed its connection by then.
func (m *Match) HoldRequest() *Held {
	h := &Held{released: make(chan struct{})}
	h.Rule = m.add(&Rule{onRequest: func(c *conn) verdict { return c.wait(h.released) }})
	return h
}

// add completes the rule and puts it in force.
func (m *Match) add(r *Rule) *Rule {
	r.proxy, r.match, r.fired = m.proxy, m.match, make(chan struct{}, signals)
	r.first, r.last = 1, -1
	for _, l := range m.limits {
		l(r)
	}
	m.proxy.mu.Lock()
	defer m.proxy.mu.Unlock()
	m.proxy.rules = append(m.proxy.rules, r)
	return r
}

// Hits is how often the rule has acted. A rule about replies acts when the reply
// has come, after the server has executed the request.
func (r *Rule) Hits() int { return int(r.hits.Load()) }

// Fired receives one value each time the rule acts, at the moment at which Hits
// rises and before the effect: a delay begins then. Values that nobody receives
// are kept, up to 1024.
func (r *Rule) Fired() <-chan struct{} { return r.fired }

// Remove ends the rule. What it delays or holds at that moment stays so.
func (r *Rule) Remove() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	kept := make([]*Rule, 0, len(r.proxy.rules))
	for _, other := range r.proxy.rules {
		if other != r {
			kept = append(kept, other)
		}
	}
	r.proxy.rules = kept
}

// takes counts a match and tells whether the rule acts on it. The caller holds
// proxy.mu.
func (r *Rule) takes(req Request) bool {
	if !r.match(req) {
		return false
	}
	r.seen++
	return r.seen >= r.first && (r.last < 0 || r.seen <= r.last)
}

func (r *Rule) fire() {
	r.hits.Add(1)
	select {
	case r.fired <- struct{}{}:
	default:
	}
}

// rulesFor returns the rules that act on the request, in their order.
func (p *Proxy) rulesFor(req Request) []*Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	var act []*Rule
	for _, r := range p.rules {
		if r.takes(req) {
			act = append(act, r)
		}
	}
	return act
}
