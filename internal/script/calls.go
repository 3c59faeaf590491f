package script

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
)

// Acquire is what acquire.lua is asked for.
type Acquire struct {
	Key          string
	Owner        string
	Depth        int           // holds that the owner will have open; 1 is the outermost
	Lease        time.Duration // whole milliseconds
	Deadline     int64         // ms of the server's clock; 0 for none
	Predecessors []string      // owners whose unanswered attempts may be replaced
}

// AcquireCode is the outcome of acquire.lua.
type AcquireCode int64

// The outcomes, numbered as in acquire.lua.
const (
	Held    AcquireCode = 0 // somebody else has the lock
	Granted AcquireCode = 1
	Late    AcquireCode = 2 // the deadline had passed; nothing was changed
	Lost    AcquireCode = 3 // a re-entry whose owner has no field any more
)

// AcquireReply is what acquire.lua answered.
type AcquireReply struct {
	Code AcquireCode
	TTL  time.Duration // what the key has left when Granted or Held; negative if it has no TTL
	Now  int64         // the server's clock, ms
}

// Send runs acquire.lua once.
func (a Acquire) Send(ctx context.Context, p Processor) (AcquireReply, error) {
	args := make([]any, 0, 4+len(a.Predecessors))
	args = append(args, a.Owner, a.Depth, a.Lease.Milliseconds(), a.Deadline)
	for _, owner := range a.Predecessors {
		args = append(args, owner)
	}
	reply, err := AcquireScript.run(ctx, p, new(atomic.Bool), []string{a.Key}, args...)
	if err != nil {
		return AcquireReply{}, err
	}
	code, ttl, now, err := threeIntegers(reply)
	if err != nil || code < int64(Held) || code > int64(Lost) {
		return AcquireReply{}, unexpected("acquire", reply)
	}
	return AcquireReply{Code: AcquireCode(code), TTL: milliseconds(ttl), Now: now}, nil
}

// Release is what release.lua is asked for.
type Release struct {
	Key     string
	Owner   string
	Depth   int    // holds that the owner has open, the closing one included; 1 frees the lock
	Channel string // the unlock channel
	Publish string // PUBLISH or SPUBLISH

	// Written, if set, becomes true when the command may have been written to a
	// connection; until then it waits for one.
	Written *atomic.Bool
}

// ReleaseCode is the outcome of release.lua.
type ReleaseCode int64

// The outcomes, numbered as in release.lua.
const (
	Gone     ReleaseCode = 0 // the owner had no field
	Released ReleaseCode = 1 // the lock is free
	Lowered  ReleaseCode = 2 // the owner still has the lock
)

// ReleaseReply is what release.lua answered.
type ReleaseReply struct {
	Code      ReleaseCode
	Receivers int64  // subscribers that the message reached, as PUBLISH counts them; -1 if the server refused it
	Refusal   string // the refusal of PUBLISH, if there was one
	Now       int64  // the server's clock, ms
}

// Send runs release.lua once.
func (r Release) Send(ctx context.Context, p Processor) (ReleaseReply, error) {
	written := r.Written
	if written == nil {
		written = new(atomic.Bool)
	}
	reply, err := ReleaseScript.run(ctx, p, written, []string{r.Key},
		r.Owner, r.Depth, r.Channel, r.Publish, wire.ReleasedMessage)
	if err != nil {
		return ReleaseReply{}, err
	}
	code, receivers, now, err := threeIntegers(reply)
	if err != nil || code < int64(Gone) || code > int64(Lowered) {
		return ReleaseReply{}, unexpected("release", reply)
	}
	answer := ReleaseReply{Code: ReleaseCode(code), Receivers: receivers, Now: now}
	if len(reply) > 3 {
		answer.Refusal = fmt.Sprint(reply[3])
	}
	return answer, nil
}

// Renewal is one lock of a renew.lua call.
type Renewal struct {
	Key   string
	Owner string
	Lease time.Duration // whole milliseconds
}

// RenewCode is the outcome of renew.lua for one lock.
type RenewCode int64

// The outcomes, numbered as in renew.lua.
const (
	RenewGone   RenewCode = 0 // the owner has no field, or the key holds another type
	Renewed     RenewCode = 1
	RenewFailed RenewCode = 2 // nothing is known
)

// Renew runs renew.lua once for locks of one slot. It returns the outcomes in
// the order of batch, and the server's clock in ms.
func Renew(ctx context.Context, p Processor, batch []Renewal) ([]RenewCode, int64, error) {
	keys := make([]string, len(batch))
	args := make([]any, 0, 2*len(batch))
	for i, b := range batch {
		keys[i] = b.Key
		args = append(args, b.Owner, b.Lease.Milliseconds())
	}
	reply, err := RenewScript.run(ctx, p, new(atomic.Bool), keys, args...)
	if err != nil {
		return nil, 0, err
	}
	numbers, err := integers(reply)
	if err != nil || len(numbers) != 1+len(batch) {
		return nil, 0, unexpected("renew", reply)
	}
	codes := make([]RenewCode, len(batch))
	for i, n := range numbers[1:] {
		if n < int64(RenewGone) || n > int64(RenewFailed) {
			return nil, 0, unexpected("renew", reply)
		}
		codes[i] = RenewCode(n)
	}
	return codes, numbers[0], nil
}

// Field is one field of a lock's hash.
type Field struct {
	Owner string
	Count string // the count as Redis has it; other clients may keep anything here
}

// InfoReply is what info.lua answered.
type InfoReply struct {
	Exists bool
	TTL    time.Duration // negative if the key has none, 0 if there is no key
	Fields []Field
	Now    int64 // the server's clock, ms
}

// Info runs info.lua once.
func Info(ctx context.Context, p Processor, key string) (InfoReply, error) {
	reply, err := InfoScript.run(ctx, p, new(atomic.Bool), []string{key})
	if err != nil {
		return InfoReply{}, err
	}
	if len(reply) < 2 || len(reply)%2 != 0 {
		return InfoReply{}, unexpected("info", reply)
	}
	numbers, err := integers(reply[:2])
	if err != nil {
		return InfoReply{}, unexpected("info", reply)
	}
	info := InfoReply{Exists: numbers[0] != -2, Now: numbers[1]}
	if info.Exists {
		info.TTL = milliseconds(numbers[0])
	}
	for i := 2; i < len(reply); i += 2 {
		info.Fields = append(info.Fields, Field{Owner: fmt.Sprint(reply[i]), Count: fmt.Sprint(reply[i+1])})
	}
	return info, nil
}
