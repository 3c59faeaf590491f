package rlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/latchkey-go/latchkey/watchdog"
)

// owner is one acquisition of one lock: the field in Redis, shared by the holds
// that re-entered it. Validity belongs to it, so its holds agree on it.
//
// Commands that change the owner's field go one at a time: whoever sends one
// has the turn. Neither Client.mu nor a command's round trip happens under mu.
type owner struct {
	c             *Client
	name, key, id string
	granted       int64 // when Redis granted it, ms of its clock

	mu      sync.Mutex
	holds   []*Hold                 // counted in Redis, as far as Redis answered
	live    int                     // those among them that were not ended
	turn    *semaphore.Weighted     // made by the first who needs it
	until   time.Time               // the end of the longest confirmed lease; see validUntil
	watch   *watchdog.Lease[*owner] // nil when no live hold wants the watchdog
	watched time.Duration           // the lease that watch renews
	expiry  *time.Timer             // tells the end of until while there is no watch
	lost    error                   // why, once the owner is lost
	lostCh  chan struct{}           // made by the first who asks, closed at loss
	unsure  bool                    // a release of the last hold may have been executed unanswered
	freed   bool                    // the last hold was released
	swept   bool                    // the background goes on with the release
}

// take waits for the turn to send a command.
func (o *owner) take(ctx context.Context) error {
	o.mu.Lock()
	if o.turn == nil {
		o.turn = semaphore.NewWeighted(1)
	}
	turn := o.turn
	o.mu.Unlock()
	return turn.Acquire(ctx, 1)
}

// give passes the turn on.
func (o *owner) give() { o.turn.Release(1) }

// entitle records a confirmed lease for a hold: sent is the time before the
// command that granted it. A lease is never shortened by it.
func (o *owner) entitle(h *Hold, sent time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost != nil || h.ended != nil {
		return
	}
	switch {
	case !h.terms.watched:
		o.extend(sent, h.terms.lease)
	case o.watch == nil || h.terms.lease > o.watched:
		o.watchFor(h.terms.lease, sent)
	default:
		o.watch.Extend(sent, h.terms.lease)
	}
}

// extend records that Redis keeps the key until sent+lease at least. Called
// with mu held.
func (o *owner) extend(sent time.Time, lease time.Duration) {
	if o.watch != nil {
		o.watch.Extend(sent, lease)
		return
	}
	if end := sent.Add(lease); end.After(o.until) {
		o.until = end
	}
	o.tellExpiry()
}

// watchFor lets the watchdog renew lease from sent on, and keeps what was
// confirmed before. Called with mu held.
func (o *owner) watchFor(lease time.Duration, sent time.Time) {
	before := o.endLocked()
	if o.watch != nil {
		o.watch.Stop()
	}
	if o.expiry != nil {
		o.expiry.Stop()
	}
	o.watched = lease
	o.watch = o.c.dog.Keep(o, o.c.group(o.key), lease, sent)
	if now := time.Now(); before.After(now) {
		o.watch.Extend(now, before.Sub(now))
	}
}

// unwatch ends the renewing; what was confirmed stays. Called with mu held.
func (o *owner) unwatch() {
	if o.watch == nil {
		return
	}
	o.until = o.watch.ValidUntil()
	o.watch.Stop()
	o.watch = nil
}

// settleEntitlement adjusts the renewing to what the live holds are entitled
// to, after one of them ended: the TTL stays as it is, and is renewed from now
// on for those who want it. Called with mu held.
func (o *owner) settleEntitlement() {
	if o.live == 0 {
		o.unwatch()
		if o.expiry != nil {
			o.expiry.Stop()
		}
		return
	}
	var longest time.Duration
	for _, h := range o.holds {
		if h.ended == nil && h.terms.watched {
			longest = max(longest, h.terms.lease)
		}
	}
	switch {
	case o.watch == nil || longest == o.watched:
	case longest == 0:
		o.unwatch()
		o.tellExpiry()
	default:
		// Its renewals go out at their interval from now; they raise the TTL
		// only when it has come down to this lease.
		o.watchFor(longest, o.watch.ValidUntil().Add(-longest))
	}
}

// tellExpiry arms the timer that tells the end of a lease that nobody renews.
// Called with mu held.
func (o *owner) tellExpiry() {
	left := time.Until(o.until)
	if o.expiry == nil {
		o.expiry = time.AfterFunc(left, func() { _ = o.err() })
		return
	}
	o.expiry.Reset(left)
}

// endLocked returns the end of the longest confirmed lease. Called with mu held.
func (o *owner) endLocked() time.Time {
	if o.watch != nil {
		return o.watch.ValidUntil()
	}
	return o.until
}

func (o *owner) validUntil() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.endLocked()
}

// err returns why the owner is lost, or nil. It compares the clock: a timer can
// fire late, after a stop of the process, and what runs then must not believe
// that it holds.
func (o *owner) err() error {
	o.mu.Lock()
	lost, expired := o.lost, o.live > 0 && !time.Now().Before(o.endLocked())
	o.mu.Unlock()
	if lost == nil && expired {
		o.lose(fmt.Errorf("%w: its lease ran out", ErrLost))
		return o.whyLost()
	}
	return lost
}

// watchdogLost takes the watchdog's word for the end of a lease. It may come
// for a lease that was replaced at the same moment, so an expiry is checked by
// the clock; that Redis has the field no longer is true of the owner.
func (o *owner) watchdogLost(why error) {
	switch {
	case errors.Is(why, watchdog.ErrGone):
		o.lose(fmt.Errorf("%w: Redis does not have it any more", ErrLost))
	case errors.Is(why, watchdog.ErrClosed):
		o.lose(fmt.Errorf("%w: %w", ErrLost, ErrClosed))
	default:
		_ = o.err()
	}
}

func (o *owner) whyLost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// lose ends all live holds as lost, unless none is left. When it returns, Lost
// is closed and the contexts have ended. What is lost stays lost: no later
// answer revives it.
func (o *owner) lose(why error) {
	o.mu.Lock()
	if o.lost != nil || o.live == 0 {
		o.mu.Unlock()
		return
	}
	o.lost = why
	o.live = 0
	if o.lostCh != nil {
		close(o.lostCh)
	}
	o.unwatch()
	if o.expiry != nil {
		o.expiry.Stop()
	}
	var contexts []*holdContext
	for _, h := range o.holds {
		contexts = append(contexts, h.finishLocked(why)...)
	}
	o.mu.Unlock()

	for _, ctx := range contexts {
		ctx.cancel(why)
	}
	o.c.end(o, false)
	o.c.log.Warn("lock lost", slog.String("lock", o.name), slog.String("owner", o.id), slog.Any("error", why))
}
