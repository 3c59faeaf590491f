package faultproxy

// pumpUp carries requests to the server until the client has closed its side or
// the connection is over.
func (c *conn) pumpUp() {
	in := newParser(c.client)
	for {
		f, err := in.request()
		if err != nil {
			c.clientEnded()
			return
		}
		if len(f.items) == 0 { // Redis does not answer an empty command
			continue
		}
		if !c.forward(c.request(f), f.raw) {
			return
		}
	}
}

// request reads a frame as a request and notes that the connection subscribes.
func (c *conn) request(f frame) Request {
	req := Request{Args: f.strings()}
	switch req.Name() {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		c.subscription.Store(true)
	}
	req.Subscription = c.subscription.Load()
	return req
}

// forward applies the rules to a request and passes it on. It is false when the
// connection is over.
func (c *conn) forward(req Request, raw []byte) bool {
	if c.lostUp || c.inHole(Upstream) {
		c.lostUp = true
		return true
	}
	ex := newExchange(req)
	switch c.applyToRequest(c.proxy.rulesFor(req), ex) {
	case over:
		return false
	case lose:
		c.lostUp = true
		return true
	case pass:
	}
	if c.inHole(Upstream) { // it was dug while a rule delayed the request
		c.lostUp = true
		return true
	}
	c.expect(ex) // before the request is sent: the reply may come at once
	if ex.answer != "" {
		return true
	}
	if _, err := c.server.Load().Write(raw); err != nil {
		c.lostUp = true // pumpDown finds out why, and ends what is to end
	}
	return true
}

// applyToRequest lets the rules act until one of them ends the request's way,
// and leaves in ex those that wait for the reply.
func (c *conn) applyToRequest(rules []*Rule, ex *exchange) verdict {
	for _, r := range rules {
		switch {
		case r.onReply != nil:
			ex.rules = append(ex.rules, r)
			continue
		case r.answer != "":
			r.fire()
			ex.answer = r.answer
			return pass
		}
		r.fire()
		if r.onRequest == nil {
			continue
		}
		if v := r.onRequest(c); v != pass {
			return v
		}
	}
	return pass
}

// clientEnded tells the server that the client sends nothing more, unless that
// too is lost in a black hole, then after it. The replies to what was sent are
// still read.
func (c *conn) clientEnded() {
	for {
		lost, changed := c.hole(Upstream)
		if !lost {
			_ = c.server.Load().CloseWrite() // it fails when the server has gone
			return
		}
		if c.wait(changed) == over {
			return
		}
	}
}
