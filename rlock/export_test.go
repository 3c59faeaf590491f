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
