package rlocktest

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// Fail makes every command of Client fail from now on; Fail(nil) heals. None of
// them is executed. How they fail depends on err:
//
//   - An error reply (see Reply) is what Redis answers to every command.
//     Subscriptions to unlock channels stay, as they do while Redis is loading.
//   - Any other error: Redis is out of reach, because of err. Connections for
//     subscriptions break, and new ones are refused.
//
// Either way the errors of the client's methods match err with errors.Is.
//
// The client tries again what may pass by itself, as rlock's documentation
// says: within the wait of a TryLock or the deadline of a Lock, and an Unlock
// for Options.UnlockTimeout. Leave that time to a bubble.
//
// Commands that are under way when Fail is called may still be executed. Others
// than Client are not affected: occupants keep their locks and release them.
func (k *Kit) Fail(err error) {
	if reply, ok := errors.AsType[replyError](err); ok {
		err = k.received(reply)
	}
	k.network.fail(err)
}

// Reply returns an error reply of Redis for Kit.Fail, such as
// Reply("LOADING Redis is loading the dataset in memory"). The client's errors
// match it with errors.Is, and they are what go-redis makes of such a reply:
// redis.HasErrorPrefix, redis.IsLoadingError and the like know them.
func Reply(text string) error { return replyError(text) }

type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError tells go-redis that a server said so.
func (replyError) RedisError() {}

// receivedError is a reply that went through go-redis, which gives some replies
// types of their own that nobody else can make.
type receivedError struct {
	replyError

	made error // by go-redis
}

func (e receivedError) Unwrap() []error { return []error{e.replyError, e.made} }

// received lets the server answer with the reply.
func (k *Kit) received(reply replyError) error {
	const script = "return redis.error_reply(ARGV[1])"
	made := k.past.Eval(context.Background(), script, nil, string(reply)).Err()
	return receivedError{reply, made}
}

// fail sets what is wrong with the network: nil for nothing.
func (n *network) fail(err error) {
	failure, away := err, false
	if _, reply := errors.AsType[redis.Error](err); err != nil && !reply {
		// As go-redis tells that there is no connection to be had: the command
		// was certainly not sent.
		failure, away = &net.OpError{Op: "dial", Net: "pipe", Err: err}, true
	}
	n.mu.Lock()
	n.failure, n.away = failure, away
	var broken []*link
	if away {
		for l := range n.subscribers {
			broken = append(broken, l)
		}
	}
	n.mu.Unlock()
	for _, l := range broken {
		_ = l.Close() // a pipe has no way to fail
	}
}

// failing returns what commands get instead of being sent, nil for nothing.
func (n *network) failing() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}
