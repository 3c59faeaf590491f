package rlock

import (
	"context"
	"errors"
)

// holdsKey is the context key under which the holds of a call chain are found.
type holdsKey struct{}

// carried is a list of holds, the innermost first.
type carried struct {
	hold *Hold
	next *carried
}

// Context returns a context that is inside the lock: a Lock of the same name
// with it, or with one derived from it, re-enters. It ends with the parent, and
// with the hold: its cause is then ErrLost, or ErrNotHeld after Unlock. Like
// Hold.Err it asks the clock, so that after a stop of the process its Err and
// Done tell the loss before any timer does. A hold that is over gives a context
// that has ended.
//
// A context made from it with context.WithTimeout or context.WithCancel does not
// ask the clock: it learns of the loss from the context above it, a moment
// later. Right before a step that counts, look with Hold.Err, or with
// RLock.HoldFrom.
//
// A holder whose work must go on when its caller gives up derives from
// context.WithoutCancel(ctx): then only the hold ends it.
func (h *Hold) Context(parent context.Context) context.Context {
	outer, _ := parent.Value(holdsKey{}).(*carried)
	list := carried{hold: h, next: outer}
	if parent.Done() == nil {
		// It ends with the hold alone: any number of them share one registration.
		return &holdContext{Context: h.shared(), cancel: func(error) {}, list: list, values: parent}
	}
	ctx := newHoldContext(parent, list)
	if h.attach(ctx) {
		// A parent that ends first must not stay attached to a long hold.
		context.AfterFunc(ctx.Context, func() { h.detach(ctx) })
	}
	return ctx
}

func newHoldContext(parent context.Context, list carried) *holdContext {
	inner, cancel := context.WithCancelCause(parent)
	return &holdContext{Context: inner, cancel: cancel, list: list}
}

// shared returns the context of this hold that has no parent.
func (h *Hold) shared() *holdContext {
	h.owner.mu.Lock()
	base := h.base
	if base == nil {
		base = newHoldContext(context.Background(), carried{hold: h})
		h.base = base
	}
	h.owner.mu.Unlock()
	h.attach(base)
	return base
}

// holdContext is a context that ends with a hold, by the clock as well.
type holdContext struct {
	context.Context //nolint:containedctx // it is a context itself, and refines this one

	cancel context.CancelCauseFunc
	list   carried
	values context.Context //nolint:containedctx // the parent of a context that shares its end; nil for others
}

// Err returns nil while the hold is open and the parent has not ended.
func (c *holdContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done returns a channel that is closed when the hold or the parent ends.
func (c *holdContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Value finds the holds, and whatever the parent carries.
func (c *holdContext) Value(key any) any {
	if _, ok := key.(holdsKey); ok {
		return &c.list
	}
	if value := c.Context.Value(key); value != nil || c.values == nil {
		return value
	}
	return c.values.Value(key)
}

// look ends the context if its hold is over. The hold's own end may still be on
// its way to cancel it.
func (c *holdContext) look() {
	if c.Context.Err() != nil {
		return
	}
	if over := c.list.hold.Err(); over != nil {
		c.cancel(over)
	}
}

// attach lets the context end with the hold; it returns false if that is over,
// and the context has ended.
func (h *Hold) attach(ctx *holdContext) bool {
	over := h.Err()
	if over == nil {
		over = h.register(ctx)
	}
	if over != nil {
		ctx.cancel(over)
	}
	return over == nil
}

// register adds the context to those that end with the hold, or returns why
// that is over.
func (h *Hold) register(ctx *holdContext) error {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	if h.ended != nil {
		return h.ended
	}
	if h.contexts == nil {
		h.contexts = make(map[*holdContext]struct{})
	}
	h.contexts[ctx] = struct{}{}
	return nil
}

func (h *Hold) detach(ctx *holdContext) {
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	delete(h.contexts, ctx)
}

// WithoutHolds returns a context that carries no holds: a Lock with it is a
// fresh owner and excludes the holds that ctx carries. It is for a goroutine
// that outlives, or must not be inside, the locks of the one that starts it;
// cancellation and values stay those of ctx.
func WithoutHolds(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsKey{}, (*carried)(nil))
}

// HoldFrom returns the innermost live hold of this lock that ctx carries, and
// whether there is one: not after a loss, and not after its Unlock. It asks the
// clock and not Redis, and works with every context derived from one that
// carries a hold. (To ask Redis, re-enter: that fails with ErrLost if it does not
// have the lock any more.)
func (l *RLock) HoldFrom(ctx context.Context) (*Hold, bool) {
	h, err := l.holdFrom(ctx)
	return h, h != nil && err == nil
}

// holdFrom returns the innermost hold of this lock that ctx carries and that
// was not unlocked, with the error of a lost one.
func (l *RLock) holdFrom(ctx context.Context) (*Hold, error) {
	list, _ := ctx.Value(holdsKey{}).(*carried)
	for ; list != nil; list = list.next {
		h := list.hold
		if h.owner.c != l.c || h.owner.key != l.key {
			continue
		}
		switch err := h.Err(); {
		case err == nil:
			return h, nil
		case errors.Is(err, ErrLost):
			return h, err
		}
	}
	return nil, nil //nolint:nilnil // carrying nothing is no error
}
