package rlock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/script"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// Info is what Redis knows of a lock at one moment.
type Info struct {
	Held  bool
	Owner string        // "<client id>:<n>", of whatever client holds it (log Client.ID to know yours); empty if free
	Count int           // the owner's open holds, as Redis counts them; 0 if free
	TTL   time.Duration // until Redis drops the lock unless it is renewed; -1 if it has no TTL, 0 if free
}

// Info asks Redis who holds the lock. It changes nothing. The answer may be out
// of date when it arrives: it is for people and for monitoring, not for
// decisions. After an error, which is the context's or that of Redis, Info is
// empty. Without an answer it returns after Options.UnlockTimeout.
func (l *RLock) Info(ctx context.Context) (Info, error) {
	reply, err := l.info(ctx)
	if err != nil {
		return Info{}, &LockError{Op: "Info", Name: l.Name(), Err: err}
	}
	if !reply.Exists {
		return Info{}, nil
	}
	info := Info{Held: true, TTL: max(reply.TTL, -1)}
	info.Owner, info.Count = holderOf(reply.Fields)
	return info, nil
}

// info checks the lock and runs the info script.
func (l *RLock) info(ctx context.Context) (script.InfoReply, error) {
	if err := l.check(); err != nil {
		return script.InfoReply{}, err
	}
	return answer(ctx, l.c, func(ctx context.Context) (script.InfoReply, error) {
		sent := time.Now()
		reply, err := script.Info(ctx, l.c.rdb, l.key)
		l.c.clock.observe(sent, time.Now(), reply.Now)
		return reply, err
	})
}

// answer calls Redis for a question whose late answer matters to nobody.
func answer[T any](ctx context.Context, c *Client, send func(context.Context) (T, error)) (T, error) {
	var zero T
	switch {
	case ctx.Err() != nil:
		return zero, ended(ctx)
	case c.isClosing():
		return zero, ErrClosed
	}
	bound := c.opts.UnlockTimeout
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	got, err := call(bounded, c, c.closing, send, func(T, error) {})
	if err != nil && !script.Answered(err) {
		err = c.whyLeft(ctx, bound, err)
	}
	return got, err
}

// holderOf picks the holder among the fields of a lock's hash. A plain lock has
// one; other kinds of lock keep more.
func holderOf(fields []script.Field) (owner string, count int) {
	for _, f := range fields {
		n, err := strconv.Atoi(f.Count)
		if err == nil && n > 0 {
			return f.Owner, n
		}
	}
	if len(fields) > 0 {
		return fields[0].Owner, 0
	}
	return "", 0
}

// ForceUnlock takes the lock from whoever holds it, for an operator who knows
// that the holder is gone, and wakes those who wait. A holder that lives
// believes in its hold until its next renewal, in a third of its lease; one of
// this client is told at once.
//
// It returns true if the lock was held and is now free, and false if nobody
// held it, or if the owner that it saw gave it up meanwhile: a later owner is
// never touched. After an error, which is the context's or that of Redis, the
// lock may or may not be free. Each of its two questions to Redis is bounded by
// Options.UnlockTimeout.
func (l *RLock) ForceUnlock(ctx context.Context) (bool, error) {
	freed, err := l.forceUnlock(ctx)
	if err != nil {
		return false, &LockError{Op: "ForceUnlock", Name: l.Name(), Err: err}
	}
	return freed, nil
}

func (l *RLock) forceUnlock(ctx context.Context) (bool, error) {
	seen, err := l.info(ctx)
	if err != nil || !seen.Exists {
		return false, err
	}
	owner, _ := holderOf(seen.Fields)
	reply, err := answer(ctx, l.c, func(ctx context.Context) (script.ReleaseReply, error) {
		return script.Release{
			Key: l.key, Owner: owner, Depth: 1, Channel: wire.Channel(l.key), Publish: l.c.publish,
		}.Send(ctx, l.c.rdb)
	})
	if err != nil {
		return false, err
	}
	if reply.Code == script.Released {
		if o := l.c.holderWithID(l.key, owner); o != nil {
			o.lose(fmt.Errorf("%w: ForceUnlock took it", ErrLost))
		}
	}
	return reply.Code == script.Released, nil
}

// holderWithID returns our own live owner of a key, if it has this id.
func (c *Client) holderWithID(key, id string) *owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.names[key]; e != nil && e.holder != nil && e.holder.id == id {
		return e.holder
	}
	return nil
}
