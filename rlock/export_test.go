package rlock

// Waiting returns how many goroutines queue for a lock.
func (c *Client) Waiting(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[c.opts.KeyPrefix+name]
	if e == nil {
		return 0
	}
	return len(e.queue)
}

// Names returns how many names the client knows something of.
func (c *Client) Names() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.names)
}

// ContextsOf returns how many contexts end with a hold.
func ContextsOf(h *Hold) int {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	return len(h.contexts)
}

// Subscribed reports whether the head of a lock's queue has a subscription.
func (c *Client) Subscribed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[c.opts.KeyPrefix+name]
	return e != nil && e.sub != nil
}
