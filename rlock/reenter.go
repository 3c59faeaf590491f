package rlock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/latchkey-go/latchkey/internal/script"
)

// reenter acquires an inner hold within outer. Siblings take turns: outer has
// one slot, which the inner hold gives back when it is unlocked. A failure
// leaves outer as it was.
func (l *RLock) reenter(ctx context.Context, outer *Hold, t terms, lim limit) (*Hold, error) {
	if err := outer.takeInner(ctx, lim); err != nil {
		return nil, err
	}
	h := &Hold{owner: outer.owner, outer: outer, terms: t}
	if err := h.enter(ctx, lim); err != nil {
		outer.giveInner()
		return nil, err
	}
	return h, nil
}

// takeInner waits for the slot of an inner hold: within the wait and ctx, and
// not longer than Options.Lease, because a goroutine that waits for itself
// would wait for ever.
func (h *Hold) takeInner(ctx context.Context, lim limit) error {
	slot := h.innerSlot()
	if !slot.TryAcquire(1) {
		if lim.once {
			return h.innerOpen()
		}
		end := lim.start.Add(h.owner.c.opts.Lease)
		if !lim.wait.IsZero() && lim.wait.Before(end) {
			end = lim.wait
		}
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		// h.Context: a wait within a hold that ends, ends with it.
		if slot.Acquire(h.Context(bounded), 1) != nil {
			if ctx.Err() != nil {
				return ended(ctx)
			}
			if over := h.Err(); over != nil {
				return over
			}
			return h.innerOpen()
		}
	}
	h.owner.mu.Lock()
	h.innerAt = time.Now()
	h.owner.mu.Unlock()
	return nil
}

func (h *Hold) innerSlot() *semaphore.Weighted {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	if h.inner == nil {
		h.inner = semaphore.NewWeighted(1)
	}
	return h.inner
}

func (h *Hold) giveInner() { h.innerSlot().Release(1) }

// innerOpen is the error for a slot that is taken.
func (h *Hold) innerOpen() error {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	return fmt.Errorf("%w: since %s (%v ago); unlock it first, or use WithoutHolds for a goroutine that is not inside it",
		ErrInnerHold, h.innerAt.Format(time.RFC3339Nano), time.Since(h.innerAt).Round(time.Millisecond))
}

// enter raises the owner's count in Redis for a new inner hold.
func (h *Hold) enter(ctx context.Context, lim limit) error {
	o := h.owner
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !lim.wait.IsZero() {
		bounded, cancel = context.WithDeadline(ctx, lim.wait)
	}
	defer cancel()
	if err := o.take(bounded); err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return noReply(lim.wait.Sub(lim.start))
	}
	defer o.give()

	depth, err := h.count()
	if err != nil {
		return err
	}
	h.depth, h.since = depth, time.Now()
	sent, err := h.raise(ctx, depth, lim)
	if err != nil {
		h.giveUp(ctx)
		return err
	}
	o.entitle(h, sent)
	if lost := o.err(); lost != nil {
		h.uncount()
		return lost
	}
	return nil
}

// raise sends the acquire of an inner hold until it is answered, the limit
// allows no more or ctx ends. Unlike an outermost one it can be sent again
// under the same id: it only ever raises what is there.
func (h *Hold) raise(ctx context.Context, depth int, lim limit) (sent time.Time, err error) {
	for failures := 0; ; failures++ {
		sent = time.Now()
		code, err := h.sendRaise(ctx, depth, lim.send(sent, min(h.terms.lease, h.owner.c.opts.Lease)))
		switch {
		case err == nil && code == script.Granted:
			return sent, nil
		case err == nil:
			lost := fmt.Errorf("%w: Redis does not have it any more", ErrLost)
			h.owner.lose(lost)
			return sent, lost
		case script.WrongType(err):
			lost := fmt.Errorf("%w: %w", ErrLost, err)
			h.owner.lose(lost)
			return sent, lost
		case ctx.Err() != nil:
			return sent, ended(ctx)
		case lim.once, !lim.bounded(), !script.Passing(err), lim.over(time.Now()):
			return sent, err
		}
		wait := backoff(failures)
		if !lim.wait.IsZero() {
			wait = min(wait, time.Until(lim.wait))
		}
		if err := pause(ctx, wait); err != nil {
			return sent, err
		}
	}
}

func (h *Hold) sendRaise(ctx context.Context, depth int, bound time.Duration) (script.AcquireCode, error) {
	o, c := h.owner, h.owner.c
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	request := script.Acquire{Key: o.key, Owner: o.id, Depth: depth, Lease: h.terms.lease}
	sent := time.Now()
	reply, err := call(bounded, c, nil, func(ctx context.Context) (script.AcquireReply, error) {
		reply, err := request.Send(ctx, c.rdb)
		c.clock.observe(sent, time.Now(), reply.Now)
		return reply, err
	}, func(reply script.AcquireReply, err error) {
		if err == nil && reply.Code == script.Granted {
			o.lower(ctx)
		}
	})
	if err != nil && !script.Answered(err) {
		err = whyUnanswered(bound, err)
	}
	return reply.Code, err
}

// giveUp undoes the counting of an inner hold that was not granted, here and in
// Redis, where an unanswered copy may have raised the count. Called with the
// owner's turn.
func (h *Hold) giveUp(ctx context.Context) {
	o := h.owner
	_ = h.finish()
	h.uncount()
	o.c.calls.add()
	go func() {
		defer o.c.calls.done()
		o.lower(ctx)
	}()
}

// lower brings the owner's count in Redis down to the holds that are counted,
// once, as well as it goes: the count is information, and only the field
// decides. An owner that has none left, because its outer holds were unlocked
// while an inner one was being acquired, is released. ctx gives values only.
func (o *owner) lower(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.c.opts.UnlockTimeout)
	defer cancel()
	if o.take(ctx) != nil {
		return
	}
	defer o.give()
	o.mu.Lock()
	holds, freed, swept, left := len(o.holds), o.freed, o.swept, time.Until(o.endLocked())
	if holds == 0 {
		o.swept, o.unsure = true, true
	}
	o.mu.Unlock()
	switch {
	case freed, holds == 0 && swept:
	case holds == 0:
		o.c.abandon(o.key, o.id, max(left, 0)) // before end wakes a head that names it
		o.c.end(o, false)
	default:
		if _, err := o.sendRelease(ctx, holds+1); err != nil {
			o.c.log.Debug("hold count not lowered",
				slog.String("lock", o.name), slog.String("owner", o.id), slog.Any("error", err))
		}
	}
}
