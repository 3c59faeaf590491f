package rlock

// StallExpiry takes away the timer that tells the end of a fixed lease, as if
// the process had been stopped when it was due.
func StallExpiry(h *Hold) {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	if h.owner.expiry == nil || !h.owner.expiry.Stop() {
		panic("there is no timer to take away")
	}
}

// LockOf returns a lock of the same client and name.
func LockOf(h *Hold) *RLock { return h.owner.c.NewRLock(h.owner.name) }
