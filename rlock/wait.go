package rlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/pubsub"
)

// How a waiting head looks for itself, when no message says that it should.
const (
	// recheckEvery is the time after which a sleeping head asks Redis again: a
	// key that vanished without a message, deleted by hand or by FLUSHALL, is
	// noticed by then.
	recheckEvery = 5 * time.Second

	// recheckRate bounds those attempts for a whole client, in attempts a
	// second on the average: with more names waited on, each is asked less often.
	recheckRate = 100

	// expirySlack and expiryJitter come on top of a key's TTL: Redis counts in
	// whole milliseconds, and waiters of many clients should not ask at once.
	expirySlack  = time.Millisecond
	expiryJitter = 4 * time.Millisecond

	// messageGrace is how long a head waits for the message of a release of
	// its own client, when that reached somebody.
	messageGrace = 5 * time.Millisecond
)

// acquisition is one outermost Lock or TryLock that waits.
type acquisition struct {
	c   *Client
	l   *RLock
	t   terms
	lim limit
	w   *waiter

	waited    bool          // it has slept for its turn: a failure no longer ends an unbounded wait
	lastDone  bool          // the last attempt of a bounded wait was made
	failures  int           // in a row
	roundTrip time.Duration // of the last answered attempt
}

// acquireOnce makes the one attempt of a TryLock that does not wait. It passes
// by the queue.
func (c *Client) acquireOnce(ctx context.Context, l *RLock, t terms, lim limit) (*Hold, error) {
	if c.isClosing() {
		return nil, ErrClosed
	}
	h, ttl, err := c.attempt(ctx, l, t, lim.send(lim.start, min(t.lease, c.opts.Lease)))
	if h == nil && err == nil {
		err = busyError{ErrNotAcquired, max(ttl, 0)}
	}
	return h, err
}

// acquire waits its turn in the local queue and then, as the head, for Redis.
func (c *Client) acquire(ctx context.Context, l *RLock, t terms, lim limit) (*Hold, error) {
	w, err := c.join(l.key)
	if err != nil {
		return nil, err
	}
	a := &acquisition{c: c, l: l, t: t, lim: lim, w: w}
	// On success too: the owner is recorded by then, so the next head knows
	// that there is nothing to ask.
	defer c.leave(w)
	for {
		if c.heads(w) {
			if h, err := a.lead(ctx); h != nil || err != nil {
				return h, a.because(ctx, err)
			}
		} else {
			a.waited = true
		}
		switch now := time.Now(); {
		case lim.over(now):
			return nil, a.ranOut()
		case lim.bounded() && !now.Before(lim.end):
			return nil, a.because(ctx, deadlinePassed(ctx))
		}
		if err := a.sleep(ctx); err != nil {
			return nil, a.because(ctx, err)
		}
	}
}

// lead does what the head of the queue has to do now: ask Redis if something
// happened or if it is time, and see that there is a subscription.
func (a *acquisition) lead(ctx context.Context) (*Hold, error) {
	if a.mustAsk() {
		if h, err := a.ask(ctx); h != nil || err != nil {
			return h, err
		}
	}
	return nil, a.subscribe(ctx)
}

// mustAsk reports whether an attempt is due, and takes the reason for it.
func (a *acquisition) mustAsk() bool {
	now := time.Now()
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	e := a.w.e
	due := e.ask || (!e.look.IsZero() && !now.Before(e.look))
	if a.lim.bounded() && !a.lastDone && !now.Before(a.lim.lastLook(a.roundTrip)) {
		a.lastDone, due = true, true
	}
	if due {
		e.ask, e.look = false, time.Time{}
	}
	return due
}

// ask makes one attempt. It returns the hold if it was granted, an error if
// the acquisition has failed for good, and neither if it goes on waiting.
func (a *acquisition) ask(ctx context.Context) (*Hold, error) {
	sent := time.Now()
	h, ttl, err := a.c.attempt(ctx, a.l, a.t, a.lim.send(sent, min(a.t.lease, a.c.opts.Lease)))
	received := time.Now()
	switch {
	case h != nil:
		return h, nil
	case err == nil:
		a.waited, a.failures, a.roundTrip = true, 0, received.Sub(sent)
		a.c.heldByAnother(a.w.e, received, ttl)
	case !a.outlasts(ctx, err):
		a.c.noticed(a.w.e) // for the next head
		if ctx.Err() != nil {
			err = ended(ctx) // it is what ended the wait, whatever the attempt brought
		}
		return nil, a.because(ctx, err)
	case a.lim.bounded() && !received.Before(a.lim.end) && a.c.hasHeard(a.w.e):
		// Cut short by the end of the wait, which says nothing of Redis: its
		// last word before stands.
		a.c.noticed(a.w.e)
	default:
		a.c.failed(a.w.e, err, backoff(a.failures))
		a.failures++
	}
	return nil, nil //nolint:nilnil // neither granted nor failed
}

// because adds the last failure of Redis to the end of a context, if there was
// one: it is why the wait was in vain.
func (a *acquisition) because(ctx context.Context, err error) error {
	a.c.mu.Lock()
	failure := a.w.e.failure
	a.c.mu.Unlock()
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err, failure = ended(ctx), err // the attempt failed as the context ended
	}
	if err == nil || ctx.Err() == nil || failure == nil || errors.Is(err, failure) {
		return err
	}
	return fmt.Errorf("%w; Redis failed before: %w", err, failure)
}

// outlasts reports whether the acquisition goes on after a failed attempt.
func (a *acquisition) outlasts(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() != nil, errors.Is(err, ErrClosed):
		return false
	case errors.Is(err, errOutlived), errors.Is(err, errLate), errors.Is(err, errTaken):
		return true
	}
	return script.Passing(err) && (a.lim.bounded() || a.waited)
}

// hasHeard reports whether an earlier attempt of this queue has come to an end
// that tells why the lock is not to be had.
func (c *Client) hasHeard(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.heard || e.failure != nil
}

// heldByAnother records the answer of an attempt that found the lock held.
func (c *Client) heldByAnother(e *entry, received time.Time, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.failure, e.heard = nil, true
	e.freeAt = time.Time{}
	e.look = received.Add(c.recheck())
	if ttl >= 0 {
		e.freeAt = received.Add(ttl)
		expiry := e.freeAt.Add(expirySlack + rand.N(expiryJitter))
		if expiry.Before(e.look) {
			e.look = expiry
		}
	}
}

// failed records that an attempt brought no answer; the next is due after a pause.
func (c *Client) failed(e *entry, failure error, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.failure = failure
	e.look = time.Now().Add(after)
}

// noticed records that the head, this one or the next, has to ask Redis.
func (c *Client) noticed(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.ask = true
}

// recheck returns the time between two attempts of a head that nothing wakes.
// Called with c.mu held.
func (c *Client) recheck() time.Duration {
	every := max(recheckEvery, time.Duration(c.waited)*time.Second/recheckRate)
	return every + rand.N(every/10)
}

// subscribe sees that the head has a subscription to the unlock channel. After
// a confirmation it notes that Redis is to be asked once more; while an owner
// of our own has the lock that is not needed, since its end signals the head.
// It returns an error only if the acquisition has failed for good: where there
// is no subscription to be had, the head looks for itself.
func (a *acquisition) subscribe(ctx context.Context) error {
	until, needed := a.needsSubscription()
	if !needed {
		return nil
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if !a.c.interruptible(a.w, cancel) {
		return nil
	}
	sub, err := a.c.hub.Subscribe(bounded, wire.Channel(a.l.key))
	if err != nil && bounded.Err() != nil {
		err = bounded.Err() // no refusal, whatever the cause of ctx is or an earlier connection said
	}
	a.c.subscribed(a.w, sub, err)
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case err == nil || bounded.Err() != nil:
		return nil
	case a.c.isClosing():
		return ErrClosed
	}
	return nil
}

// needsSubscription reports whether the head lacks a subscription and should
// try for one, and until when it may be blocked in it.
func (a *acquisition) needsSubscription() (until time.Time, needed bool) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	e := a.w.e
	if e.sub != nil && e.sub.Err() != nil {
		e.sub.Close()
		e.sub = nil
	}
	if e.sub != nil || e.refused || e.ask || a.lastDone {
		return until, false // after the last attempt a message is of no more use
	}
	until = time.Now().Add(recheckEvery)
	if !e.look.IsZero() && e.look.Before(until) {
		until = e.look
	}
	if a.lim.bounded() && !a.lastDone {
		if last := a.lim.lastLook(a.roundTrip); last.Before(until) {
			until = last
		}
	}
	return until, time.Now().Before(until)
}

// interruptible lets a signal to the waiter end what it is about to be blocked
// in. It returns false if there is something else to do already.
func (c *Client) interruptible(w *waiter, cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.e.ask || c.state != open {
		return false
	}
	w.interrupt = cancel
	return true
}

// subscribed records how the subscribing of the head ended.
func (c *Client) subscribed(w *waiter, sub *pubsub.Subscription, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.interrupt = nil
	if err == nil {
		w.e.sub = sub
		// A release between the attempt and the confirmation reached nobody.
		w.e.ask = w.e.ask || w.e.holder == nil
		return
	}
	if script.Answered(err) && !script.Passing(err) {
		w.e.refused = true
		c.channelRefused(err.Error())
	}
}

// channelRefused reports, once, that the server refuses the unlock channels.
func (c *Client) channelRefused(why string) {
	c.refusal.Do(func() {
		c.log.Warn("no rights on the unlock channel: waiters find a released lock only by looking, "+
			"grant the user the channels that match redisson_lock__channel*",
			slog.String("error", why), slog.Duration("every", recheckEvery))
	})
}

// sleep waits until something happens that the waiter must look at. Only the
// head looks at Redis' side of things; the others wait for their turn.
func (a *acquisition) sleep(ctx context.Context) error {
	until, messages := a.sleepsUntil()
	var alarm <-chan time.Time
	if !until.IsZero() {
		d := time.Until(until)
		if d <= 0 {
			return nil
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-a.w.signal:
	case <-alarm:
	case <-messages:
		a.c.noticed(a.w.e)
	case <-a.c.closing:
		return ErrClosed
	case <-ctx.Done():
		return ended(ctx)
	}
	return nil
}

// sleepsUntil returns when the waiter looks by itself, zero for never, and what
// else wakes it if it is the head.
func (a *acquisition) sleepsUntil() (until time.Time, messages <-chan struct{}) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	until = a.lim.wait
	e := a.w.e
	if e.queue[0] != a.w {
		return until, nil
	}
	if e.sub != nil {
		messages = e.sub.Wake()
	}
	if e.ask {
		return time.Now(), messages
	}
	earlier := func(at time.Time) {
		if !at.IsZero() && (until.IsZero() || at.Before(until)) {
			until = at
		}
	}
	earlier(e.look)
	if a.lim.bounded() && !a.lastDone {
		earlier(a.lim.lastLook(a.roundTrip))
	}
	return until, messages
}

// ranOut returns the error of a wait that is over: the failure of Redis if it
// failed last, and otherwise that somebody else has the lock, and for how long.
func (a *acquisition) ranOut() error {
	a.c.mu.Lock()
	failure, freeAt, holder := a.w.e.failure, a.w.e.freeAt, a.w.e.holder
	a.c.mu.Unlock()
	if failure != nil {
		return failure
	}
	if holder != nil {
		freeAt = holder.validUntil()
	}
	busy := busyError{ErrNotAcquired, max(time.Until(freeAt), 0)}
	if holder != nil {
		busy.error = fmt.Errorf("%w, of this very client (code inside the lock passes on the context that it was given)",
			ErrNotAcquired)
	}
	return busy
}

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}
