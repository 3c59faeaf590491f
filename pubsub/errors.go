package pubsub

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrClosed is what a Subscription reports after its own Close or the
	// Close of its Hub, and what Subscribe returns on a closed Hub.
	ErrClosed = errors.New("pubsub: closed")

	// ErrSilent is the connection error of a server that sent nothing within
	// Options.PingEvery + Options.PongWait although it was sent a PING.
	ErrSilent = errors.New("pubsub: the server does not answer")

	// errConnectTimeout is the connection error of an attempt to connect that was left behind.
	errConnectTimeout = fmt.Errorf("pubsub: no connection within %v", connectTimeout)
)

// subscribeError adds the channel to err, which errors.Is and errors.As still find.
func subscribeError(channel string, err error) error {
	return fmt.Errorf("pubsub: subscribe %q: %w", channel, err)
}

// contextError describes the end of ctx: its error, its cause, and the last
// connection error if there was one. errors.Is and errors.As find all three.
func contextError(ctx context.Context, lastErr error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if lastErr != nil {
		err = fmt.Errorf("%w (last connection error: %w)", err, lastErr)
	}
	return err
}

// isReply reports whether err is an error that the server sent, as opposed to a broken connection.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && !errors.Is(err, redis.Nil)
}

// isRefusal reports whether err is an answer that trying again will not
// change: missing rights, wrong password, unknown command. The answers of a
// server that is loading, busy, full or without a master are not.
func isRefusal(err error) bool {
	return isReply(err) && !redis.IsLoadingError(err) && !redis.IsMasterDownError(err) &&
		!redis.IsClusterDownError(err) && !redis.IsTryAgainError(err) && !redis.IsReadOnlyError(err) &&
		!redis.IsMaxClientsError(err) && !redis.HasErrorPrefix(err, "BUSY")
}
