package rlock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/watchdog"
)

// Renew asks Redis to keep the lock for lease from now on, at least 1 ms and
// counted in whole milliseconds: how a hold with a fixed lease is extended. It
// never shortens what is there.
//
//   - nil: Redis has done so, and ValidUntil says until when.
//   - ErrLost: Redis does not have the lock any more; the hold is lost.
//   - ErrNotHeld: Unlock was called before.
//   - the context's error or that of Redis: nothing is known to have changed,
//     and the hold ends when it would have. With a bounded ctx, failures that
//     pass are tried again within it.
func (h *Hold) Renew(ctx context.Context, lease time.Duration) error {
	if err := checkLease("Renew's lease", lease); err != nil {
		return h.fail("Renew", err)
	}
	lease = lease.Truncate(time.Millisecond)
	lim := limitOf(ctx)
	for failures := 0; ; failures++ {
		if err := h.Err(); err != nil {
			return h.fail("Renew", err)
		}
		if ctx.Err() != nil {
			return h.fail("Renew", ended(ctx))
		}
		err := h.renewOnce(ctx, lease, lim.send(time.Now(), min(lease, h.owner.c.opts.Lease)))
		if err == nil || !lim.bounded() || !script.Passing(err) {
			return h.fail("Renew", err)
		}
		if pause(ctx, backoff(failures)) != nil {
			return h.fail("Renew", fmt.Errorf("%w: %w", ended(ctx), err))
		}
	}
}

func (h *Hold) renewOnce(ctx context.Context, lease, bound time.Duration) error {
	o, c := h.owner, h.owner.c
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	sent := time.Now()
	code, err := call(bounded, c, nil, func(ctx context.Context) (script.RenewCode, error) {
		codes, err := c.renew(ctx, []script.Renewal{{Key: o.key, Owner: o.id, Lease: lease}})
		if err != nil {
			return 0, err
		}
		return codes[0], nil
	}, func(script.RenewCode, error) {}) // a longer TTL than anybody counts on does no harm
	switch {
	case script.Answered(err):
		return err
	case err != nil:
		return c.whyLeft(ctx, bound, err)
	case code == script.Renewed:
		return h.renewed(sent, lease)
	case code == script.RenewGone:
		lost := fmt.Errorf("%w: Redis does not have it any more", ErrLost)
		o.lose(lost)
		return lost
	}
	return fmt.Errorf("%w: the server refused to renew it", script.ErrReply)
}

// renewed records a confirmed renewal, unless the hold has ended meanwhile.
func (h *Hold) renewed(sent time.Time, lease time.Duration) error {
	if err := h.Err(); err != nil {
		return err
	}
	h.owner.mu.Lock()
	defer h.owner.mu.Unlock()
	if h.ended == nil {
		h.owner.extend(sent, lease)
	}
	return h.ended
}

// renew sends one renewal script and takes in the server's clock.
func (c *Client) renew(ctx context.Context, batch []script.Renewal) ([]script.RenewCode, error) {
	sent := time.Now()
	codes, now, err := script.Renew(ctx, c.rdb, batch)
	c.clock.observe(sent, time.Now(), now)
	return codes, err
}

// renewBatch renews the leases of owners that share a group, for the watchdog.
func (c *Client) renewBatch(ctx context.Context, _ string, owners []*owner) []watchdog.Outcome {
	c.calls.add()
	defer c.calls.done()
	batch := make([]script.Renewal, len(owners))
	for i, o := range owners {
		batch[i] = o.renewal()
	}
	codes, err := c.renew(ctx, batch)
	if err != nil && script.OneByOne(err) {
		codes, err = c.renewEach(ctx, batch)
	}
	if err != nil {
		c.log.Warn("renewal failed, trying again before the lease ends",
			slog.Int("locks", len(owners)), slog.Any("error", err))
	}
	outcomes := make([]watchdog.Outcome, len(owners))
	for i, code := range codes {
		switch code {
		case script.Renewed:
			outcomes[i] = watchdog.Renewed
		case script.RenewGone:
			outcomes[i] = watchdog.Gone
		case script.RenewFailed:
			outcomes[i] = watchdog.Unknown
		}
	}
	return outcomes
}

// renewEach renews keys that the server does not take together: a slot that is
// being moved, or a cluster behind a proxy. It returns the last error, and what
// it learnt.
func (c *Client) renewEach(ctx context.Context, batch []script.Renewal) ([]script.RenewCode, error) {
	codes := make([]script.RenewCode, len(batch))
	var last error
	for i, renewal := range batch {
		code, err := c.renew(ctx, []script.Renewal{renewal})
		if err != nil {
			codes[i], last = script.RenewFailed, err
			continue
		}
		codes[i] = code[0]
	}
	return codes, last
}

// renewal says what the watchdog asks for an owner.
func (o *owner) renewal() script.Renewal {
	o.mu.Lock()
	defer o.mu.Unlock()
	return script.Renewal{Key: o.key, Owner: o.id, Lease: o.watched}
}
