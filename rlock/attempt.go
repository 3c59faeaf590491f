package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
)

// minSend is how long an attempt is waited for at least, however short the
// whole wait: a third of a short wait is less than a slow network needs.
const minSend = 100 * time.Millisecond

// Attempts that were answered, and yet brought nothing.
var (
	errLate = errors.New("the attempt reached Redis after its deadline twice; the network or this process is too slow " +
		"for the bound that was set")
	errOutlived = errors.New("the lease ran out before the reply that granted it arrived")
	errTaken    = errors.New("the lock was granted, and taken away again before the reply was looked at")
)

// attempt asks Redis once for the lock, as a fresh owner. It returns a hold
// if the lock was granted, or the TTL of the lock if somebody else has it, or
// an error. It returns as soon as ctx ends, the client closes or bound passes,
// and leaves nothing behind that will not be swept.
func (c *Client) attempt(ctx context.Context, l *RLock, t terms, bound time.Duration) (*Hold, time.Duration, error) {
	// Close waits for the attempt as a whole: a grant that comes too late is
	// handed to the background before it counts as over. Close closes closing
	// before it looks at calls, so it sees each attempt that passes this check.
	c.calls.add()
	defer c.calls.done()
	if c.isClosing() {
		return nil, 0, ErrClosed
	}
	id := c.newOwnerID()
	sent := time.Now()
	end, deadline := sent.Add(bound), c.clock.at(sent)+bound.Milliseconds()
	// A refusal as late tells the clock of the server that refused; the second
	// copy is stated by it, within the same bound. The first was answered, so the
	// id has no copy under way.
	for range 2 {
		reply, err := c.sendAcquire(ctx, l.key, id, t, sent, end.Sub(sent), deadline)
		if err != nil {
			return nil, 0, err
		}
		switch reply.Code {
		case script.Granted:
			h, err := c.admit(l, id, t, sent, reply.Now)
			return h, 0, err
		case script.Held:
			return nil, reply.TTL, nil
		case script.Late:
			sent = time.Now()
			deadline = reply.Now + end.Sub(sent).Milliseconds()
		case script.Lost:
			return nil, 0, fmt.Errorf("%w: a fresh attempt cannot be lost", script.ErrReply)
		}
	}
	return nil, 0, errLate
}

// sendAcquire sends one copy of an outermost acquire and waits for its answer
// within bound. A copy that may have been executed unanswered becomes a ghost.
func (c *Client) sendAcquire(
	ctx context.Context, key, id string, t terms, sent time.Time, bound time.Duration, deadline int64,
) (script.AcquireReply, error) {
	request := script.Acquire{
		Key: key, Owner: id, Depth: 1, Lease: t.lease, Deadline: deadline, Predecessors: c.ghostsOf(key),
	}
	g := &ghost{
		c: c, key: key, id: id, deadline: deadline,
		sweepAt: sent.Add(bound + time.Millisecond), expires: sent.Add(bound + t.lease),
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	reply, err := call(bounded, c, c.closing, func(ctx context.Context) (script.AcquireReply, error) {
		reply, err := request.Send(ctx, c.rdb)
		c.clock.observe(sent, time.Now(), reply.Now)
		return reply, err
	}, g.answered)
	switch {
	case err == nil:
		return reply, nil
	case script.Answered(err):
		return reply, err
	case unanswered(err):
		c.haunt(g)
	}
	return reply, c.whyLeft(ctx, bound, err)
}

// unanswered reports whether a script may have been executed, now or later,
// though no reply said so.
func unanswered(err error) bool {
	return err != nil && !script.Answered(err) && !script.NotSent(err)
}

// whyLeft explains an unanswered call to its caller: the context that ended,
// the client that closed, or else the failure of the network.
func (c *Client) whyLeft(ctx context.Context, bound time.Duration, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select {
	case <-c.closing:
		if errors.Is(err, errLeft) {
			return ErrClosed
		}
	default:
	}
	return whyUnanswered(bound, err)
}

// whyUnanswered names the failure of the network behind an unanswered call. A
// context error from below comes from the bound that we set ourselves.
func whyUnanswered(bound time.Duration, err error) error {
	if errors.Is(err, errLeft) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noReply(bound)
	}
	return err
}

// admit makes a hold of a granted attempt, unless nobody can hold it any more:
// its lease ran out before the reply came, or the client has closed. What Redis
// granted is then released in the background.
func (c *Client) admit(l *RLock, id string, t terms, sent time.Time, granted int64) (*Hold, error) {
	if !time.Now().Before(sent.Add(t.lease)) {
		c.abandon(l.key, id, t.lease)
		return nil, errOutlived
	}
	o := &owner{c: c, name: l.name, key: l.key, id: id, granted: granted, until: sent.Add(t.lease)}
	h := &Hold{owner: o, depth: 1, terms: t, since: time.Now()}
	o.holds, o.live = []*Hold{h}, 1
	o.entitle(h, sent)

	replaced, err := c.begin(o, t.watched)
	if err != nil {
		_ = h.finish()
		c.abandon(l.key, id, t.lease)
		return nil, err
	}
	if replaced != nil {
		replaced.lose(fmt.Errorf("%w: Redis granted it to another owner", ErrLost))
	}
	if o.err() != nil {
		// Lost between the grant and begin: that end found nothing to record.
		c.end(o, false)
	}
	return h, nil
}
