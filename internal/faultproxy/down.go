package faultproxy

import "slices"

// pumpDown carries replies and messages to the client until the server has
// closed its side or the connection is over.
func (c *conn) pumpDown() {
	out := newParser(c.server.Load())
	for {
		f, err := out.reply()
		if err != nil {
			c.serverEnded()
			return
		}
		if c.inHole(Downstream) {
			c.goSilent()
		}
		if !c.deliver(f) {
			return
		}
	}
}

// deliver applies the rules to a frame and passes it on. It is false when the
// connection is over.
func (c *conn) deliver(f frame) bool {
	ex, whole := c.claim(f)
	switch c.applyToReply(ex) {
	case over:
		return false
	case lose:
		c.goSilent()
		return true
	case pass:
	}
	if c.inHole(Downstream) { // it was dug while a rule delayed the reply
		c.goSilent()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lostDown {
		return true
	}
	c.write(f.raw)
	c.answered(ex, whole)
	c.writeAnswers()
	return true
}

// answered counts a frame that was written for an exchange, the first of the
// queue, and removes the exchange after its last. The caller holds mu.
func (c *conn) answered(ex *exchange, whole bool) {
	if ex == nil || c.lostDown { // silence has emptied the queue
		return
	}
	ex.got++
	if whole || ex.complete() {
		c.pop()
	}
}

// applyToReply lets the rules of an exchange act on the first frame of its
// reply; they have been used up after that.
func (c *conn) applyToReply(ex *exchange) verdict {
	if ex == nil {
		return pass
	}
	rules := ex.rules
	ex.rules = nil
	for _, r := range rules {
		r.fire()
		if v := r.onReply(c); v != pass {
			return v
		}
	}
	return pass
}

func (c *conn) goSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silence()
}

// serverEnded ends the client's side too, unless the client is not to hear of
// it. Then the connection lasts until the client closes it.
func (c *conn) serverEnded() {
	if c.inHole(Downstream) {
		c.goSilent()
	}
	c.mu.Lock()
	hidden := c.lostDown
	c.mu.Unlock()
	if !hidden {
		c.end()
	}
}

// claim finds the exchange that a frame answers, and tells whether the frame is
// the whole answer; otherwise it is one of several confirmations. The exchange
// is nil for what nobody asked for: messages, other pushes, and an
// unsubscription by the server's own will.
func (c *conn) claim(f frame) (ex *exchange, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	about, push := c.pushKind(f)
	confirms := slices.Contains(subscribeFamily, about)
	if push && !confirms {
		return nil, false
	}
	for len(c.pending) > 0 {
		head := c.pending[0]
		switch {
		case confirms && head.name == about:
			return head, false
		case head.open(): // this frame is about something else, so that was all of it
			c.pop()
		case confirms:
			return nil, false
		default:
			return head, true
		}
	}
	return nil, false
}

// pushKind returns the kind of a frame that came by way of a subscription, such
// as "message", and whether it is one. RESP3 marks them; in RESP2 they are arrays
// like others, on connections that have subscribed.
func (c *conn) pushKind(f frame) (kind string, push bool) {
	switch {
	case f.kind == '>':
		return f.item(0), true
	case f.kind != '*' || !c.subscription.Load():
		return "", false
	}
	kind = f.item(0)
	switch kind {
	case "message", "pmessage", "smessage":
		return kind, true
	}
	if slices.Contains(subscribeFamily, kind) {
		return kind, true
	}
	return "", false
}
