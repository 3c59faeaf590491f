package script

import (
	"errors"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Answered reports whether the error is the server's reply. The script then has
// granted, released and renewed nothing: at the most it removed a predecessor, or
// raised the TTL of a hold, before a right that it lacked.
func Answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// notSentError is the failure of a command that was never written to a connection.
type notSentError struct{ err error }

func (e notSentError) Error() string { return e.err.Error() }
func (e notSentError) Unwrap() error { return e.err }

// NotSent reports whether the error shows that no server can have received the
// command: no connection was to be had, or not in time.
func NotSent(err error) bool {
	if _, ok := errors.AsType[notSentError](err); ok {
		return true
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, redis.ErrClosed)
}

// passing are the error replies that end by themselves: the server is starting,
// busy, being replaced, or not the one to ask.
var passing = []string{
	"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "BUSY", "MOVED", "ASK",
}

// Passing reports whether a later attempt may succeed with nothing changed at
// the caller's side: the connection failed, or the server said so. A closed
// client, missing rights, a wrong type and the like do not pass.
func Passing(err error) bool {
	if Answered(err) {
		return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) ||
			redis.IsMaxClientsError(err)
	}
	return !errors.Is(err, redis.ErrClosed) && !errors.Is(err, ErrReply)
}

// WrongType reports whether the key holds another type than a lock's hash.
func WrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// OneByOne reports whether a batch was refused because its keys do not go
// together now, so that each key has to be sent alone.
func OneByOne(err error) bool {
	return redis.HasErrorPrefix(err, "CROSSSLOT") || redis.HasErrorPrefix(err, "TRYAGAIN")
}
