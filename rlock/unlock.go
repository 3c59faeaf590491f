package rlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// Unlock ends the hold; the last open hold of an owner frees the lock and wakes
// those who wait for it. It takes values from ctx and neither its cancellation
// nor its deadline: a release is bounded by Options.UnlockTimeout alone.
//
// From the call on, whatever it returns, the hold is over: its contexts have
// ended, Err is not nil, and it is renewed no more, unless another hold of the
// same owner wants that.
//
//   - nil: Redis has released it. A later call returns ErrNotHeld.
//   - ErrLost: the lock was lost before; its release was sent all the same, once.
//   - "outcome unknown", with the error of Redis: no answer came in time. The
//     release goes on in the background until the lease has passed; a second
//     Unlock tries again.
//   - any other error is the refusal of Redis: the lock ends with its lease; a
//     second Unlock tries again.
//
// Holds of one owner may be unlocked in any order, from any goroutine. Every
// call is safe to defer: none panics, and one too many changes nothing.
func (h *Hold) Unlock(ctx context.Context) error {
	if h == nil || h.owner == nil { // deferred before the error of Lock was looked at
		return &LockError{Op: "Unlock", Err: ErrNotHeld}
	}
	why := h.finish()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.owner.c.opts.UnlockTimeout)
	defer cancel()
	if !h.beginUnlock(bounded) {
		return h.fail("Unlock", fmt.Errorf("outcome unknown: %w", noReply(h.owner.c.opts.UnlockTimeout)))
	}
	defer h.endUnlock()
	if h.released {
		return h.fail("Unlock", h.Err())
	}
	if why == ErrNotHeld { //nolint:errorlint // exactly this: not lost, unlocked by this or an earlier call
		why = nil
	}
	err := h.release(bounded, why != nil)
	if h.outer != nil && !h.gaveBack {
		h.gaveBack = true
		h.outer.giveInner()
	}
	switch {
	case why != nil && (err == nil || errors.Is(err, ErrLost)):
		err = why
	case why != nil:
		err = fmt.Errorf("%w; its release: %w", why, err)
	}
	return h.fail("Unlock", err)
}

// beginUnlock waits until no other Unlock of this hold works. What that one did
// happens before beginUnlock returns true. It returns false when ctx ends first.
func (h *Hold) beginUnlock(ctx context.Context) bool {
	for {
		h.owner.mu.Lock()
		if !h.unlocking {
			h.unlocking = true
			h.owner.mu.Unlock()
			return true
		}
		if h.unlocked == nil {
			h.unlocked = make(chan struct{})
		}
		other := h.unlocked
		h.owner.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return false
		}
	}
}

func (h *Hold) endUnlock() {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	h.unlocking = false
	if h.unlocked != nil {
		close(h.unlocked)
		h.unlocked = nil
	}
}

// release sends the hold's release until it is answered or ctx ends; once only
// for a hold that was lost. It returns nil if Redis has released it, a loss
// that it learnt of, or what kept it from doing so. Called between
// beginUnlock and endUnlock.
func (h *Hold) release(ctx context.Context, lost bool) error {
	o := h.owner
	if err := o.take(ctx); err != nil {
		// Another command of this owner is still under way.
		h.uncount()
		return h.unknown(noReply(o.c.opts.UnlockTimeout))
	}
	defer o.give()
	depth := h.uncount()
	if o.isFreed() {
		h.released = true
		return nil
	}
	var last error
	for failures := 0; ; failures++ {
		reply, err := o.sendRelease(ctx, depth)
		switch {
		case err == nil:
			return h.releaseAnswered(reply)
		case script.WrongType(err):
			return h.gone(err)
		case !unanswered(err) && !script.Passing(err):
			h.endIfLast()
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if lost || pause(ctx, backoff(failures)) != nil {
			return h.unknown(last)
		}
	}
}

// sendRelease sends one copy of a release and waits for its answer: a third of
// Options.UnlockTimeout from when it was written. A copy that still waits for a
// connection keeps its place until ctx ends, since the next one would queue
// behind all others.
func (o *owner) sendRelease(ctx context.Context, depth int) (script.ReleaseReply, error) {
	c := o.c
	bound := max(c.opts.UnlockTimeout/3, min(c.opts.UnlockTimeout, minSend))
	var written atomic.Bool
	late, stop := afterWritten(&written, bound)
	defer stop()
	request := script.Release{
		Key: o.key, Owner: o.id, Depth: depth, Channel: wire.Channel(o.key), Publish: c.publish, Written: &written,
	}
	sent := time.Now()
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	reply, err := call(bounded, c, late, func(ctx context.Context) (script.ReleaseReply, error) {
		reply, err := request.Send(ctx, c.rdb)
		c.clock.observe(sent, time.Now(), reply.Now)
		return reply, err
	}, func(script.ReleaseReply, error) {}) // whenever it is executed, it only releases
	if err == nil || script.Answered(err) {
		return reply, err
	}
	if depth == 1 && unanswered(err) {
		o.mu.Lock()
		o.unsure = true
		o.mu.Unlock()
	}
	return reply, whyUnanswered(time.Since(sent), err)
}

// afterWritten returns a channel that is closed when bound has passed since
// written was seen to be true, looking at it after bound for the first time; and
// a function that ends the looking.
func afterWritten(written *atomic.Bool, bound time.Duration) (<-chan struct{}, func()) {
	var (
		mu      sync.Mutex
		timer   *time.Timer
		late    = make(chan struct{})
		waiting bool // it was seen unwritten
	)
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !written.Load():
			waiting = true
			timer.Reset(bound / 4)
		case waiting:
			waiting = false
			timer.Reset(bound)
		default:
			close(late)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(bound, look)
	return late, func() { timer.Stop() }
}

// releaseAnswered takes Redis' answer to a release. Called between
// beginUnlock and endUnlock.
func (h *Hold) releaseAnswered(reply script.ReleaseReply) error {
	o := h.owner
	h.released = true
	if reply.Refusal != "" {
		o.c.channelRefused(reply.Refusal)
	}
	switch reply.Code {
	case script.Lowered:
		return nil
	case script.Released:
		o.setFreed()
		o.c.end(o, reply.Receivers > 0)
		return nil
	case script.Gone:
	}
	if o.maybeReleased() {
		o.setFreed()
		o.c.end(o, false)
		return nil
	}
	return h.gone(nil)
}

// gone ends a release that found no field of the owner: the lock was lost. why
// is what Redis has in its place, nil for nothing.
func (h *Hold) gone(why error) error {
	lost := fmt.Errorf("%w: Redis does not have it any more", ErrLost)
	if why != nil {
		lost = fmt.Errorf("%w: %w", ErrLost, why)
	}
	h.released = true
	o := h.owner
	o.lose(lost)
	o.c.end(o, false)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil { // this was the last hold
		o.lost = lost
		if o.lostCh != nil {
			close(o.lostCh)
		}
	}
	h.ended = o.lost
	return lost
}

// unknown ends a release without an answer. If no other hold of the owner is
// counted, the background goes on with it, and local waiters go by Redis alone.
func (h *Hold) unknown(err error) error {
	o := h.owner
	o.mu.Lock()
	last := len(o.holds) == 0
	sweep, left := last && !o.swept, time.Until(o.endLocked())
	if last {
		o.swept, o.unsure = true, true
	}
	o.mu.Unlock()
	// Listed before end wakes the head, whose attempt names it as a predecessor.
	if sweep && left > 0 {
		o.c.abandon(o.key, o.id, left)
	}
	if last {
		o.c.end(o, false)
	}
	return fmt.Errorf("outcome unknown: %w", err)
}

// endIfLast records that the owner has the lock no longer, unless another hold
// of it is counted, one that is being acquired included.
func (h *Hold) endIfLast() bool {
	o := h.owner
	o.mu.Lock()
	last := len(o.holds) == 0
	o.mu.Unlock()
	if last {
		o.c.end(o, false)
	}
	return last
}

func (o *owner) isFreed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.freed
}

func (o *owner) setFreed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.freed = true
}

// maybeReleased reports whether an earlier copy of the last hold's release may
// have been executed: a field that is gone is then no loss.
func (o *owner) maybeReleased() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsure && o.lost == nil
}

// fail makes the error of a method of a hold; nil stays nil.
func (h *Hold) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &LockError{Op: op, Name: h.owner.name, Err: err}
}
