package rlock

import (
	"time"

	"golang.org/x/sync/semaphore"
)

// Hold is one acquisition of a lock that has not been unlocked yet. It is given
// out by Lock and TryLock, and belongs to whoever has it: it may be passed
// between goroutines and unlocked by any of them. Its methods are safe for
// concurrent use. The zero value is of no use.
type Hold struct {
	owner *owner
	outer *Hold // the hold that it re-entered; nil for an outermost one
	depth int
	terms terms
	since time.Time

	// Of the Unlock that works, one at a time: see beginUnlock.
	released bool // Redis has answered the release
	gaveBack bool // the outer hold's inner slot is free again

	// Guarded by owner.mu.
	unlocking bool                      // an Unlock works
	unlocked  chan struct{}             // made by the first other one that waits for it, closed at its end
	ended     error                     // why the hold is over; nil while it is open
	contexts  map[*holdContext]struct{} // to be ended with it
	base      *holdContext              // the one that those without an end of their parent share
	inner     *semaphore.Weighted       // the slot for one open inner hold, made on first use
	innerAt   time.Time                 // since when it is taken
}

// Name returns the lock's name, without Options.KeyPrefix.
func (h *Hold) Name() string { return h.owner.name }

// Owner returns the owner id as Redis has it: "<client id>:<n>". Holds that
// re-entered one another share it.
func (h *Hold) Owner() string { return h.owner.id }

// Depth returns how many holds of this owner were open, this one included, when
// it was acquired: 1 is the outermost.
func (h *Hold) Depth() int { return h.depth }

// ValidUntil returns when the hold is lost unless a renewal is confirmed before:
// the time before the last confirmed command was sent, plus the lease it set. It
// counts by this process' monotonic clock. After the hold has ended it returns
// the last such time.
func (h *Hold) ValidUntil() time.Time { return h.owner.validUntil() }

// Err returns nil while the lock is held; an error that matches ErrLost once it
// is lost; and one that matches ErrNotHeld after Unlock was called. It asks the
// clock and not Redis: by the local monotonic clock it is never late, however
// long the process was stopped, and nothing that arrives later makes it nil
// again.
func (h *Hold) Err() error {
	_ = h.owner.err() // a hold that has run out by now ends here
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	return h.ended
}

// Lost returns a channel that is closed when the lock is lost while this hold,
// or another one of the same owner, is open. It is not closed by Unlock.
func (h *Hold) Lost() <-chan struct{} {
	_ = h.owner.err()
	o := h.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lostCh == nil {
		o.lostCh = make(chan struct{})
		if o.lost != nil {
			close(o.lostCh)
		}
	}
	return o.lostCh
}

// finish ends the hold, as unlocked unless it was lost before, and stops what
// was done for it: renewing, unless another hold of the owner wants it, and its
// contexts. It returns why the hold is over.
func (h *Hold) finish() error {
	o := h.owner
	_ = o.err()
	o.mu.Lock()
	if h.ended != nil {
		defer o.mu.Unlock()
		return h.ended
	}
	contexts := h.finishLocked(ErrNotHeld)
	o.live--
	o.settleEntitlement()
	o.mu.Unlock()
	for _, ctx := range contexts {
		ctx.cancel(ErrNotHeld)
	}
	return ErrNotHeld
}

// finishLocked marks the hold as over and returns the contexts that end with
// it. Called with owner.mu held.
func (h *Hold) finishLocked(why error) []*holdContext {
	if h.ended != nil {
		return nil
	}
	h.ended = why
	contexts := make([]*holdContext, 0, len(h.contexts))
	for ctx := range h.contexts {
		contexts = append(contexts, ctx)
	}
	h.contexts = nil
	return contexts
}

// count adds the hold to those that its owner has in Redis and returns how many
// there are then. An inner hold is only counted while its outer one is open;
// otherwise count returns why that is over.
func (h *Hold) count() (int, error) {
	o := h.owner
	_ = o.err()
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.outer != nil && h.outer.ended != nil {
		return 0, h.outer.ended
	}
	o.holds = append(o.holds, h)
	o.live++
	return len(o.holds), nil
}

// uncount takes the hold out of those that its owner has in Redis and returns
// how many there were with it. A second call finds it out and returns the same.
func (h *Hold) uncount() int {
	o := h.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, other := range o.holds {
		if other == h {
			o.holds = append(o.holds[:i], o.holds[i+1:]...)
			break
		}
	}
	return len(o.holds) + 1
}
