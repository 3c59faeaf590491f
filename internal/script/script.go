// Package script holds the Lua scripts that alone change a lock in Redis, and a
// typed Go function for each. A function sends its script once: it never
// resends, so that whoever calls it knows every copy that may be under way.
package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names a script by its SHA-1: a cache key, not a secret.
	_ "embed"
	"encoding/hex"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Processor sends one command; every go-redis client is one.
type Processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Script is the text of a Lua script and the digest that EVALSHA takes.
type Script struct {
	source string
	sha    string
}

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string
	//go:embed info.lua
	infoSource string
)

// The scripts, one for each way to look at a lock or to change it.
var (
	AcquireScript = newScript(acquireSource)
	ReleaseScript = newScript(releaseSource)
	RenewScript   = newScript(renewSource)
	InfoScript    = newScript(infoSource)
)

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return &Script{source: source, sha: hex.EncodeToString(sum[:])}
}

// SHA returns the digest under which a server caches the script.
func (s *Script) SHA() string { return s.sha }

// Source returns the script's text.
func (s *Script) Source() string { return s.source }

// oneShot is a command that go-redis sends at most once: by default it would
// resend a script whose reply is late or lost, within one call and unseen.
type oneShot struct {
	*redis.Cmd
	written *atomic.Bool // go-redis has asked for the words, as it does to write them
}

// NoRetry makes go-redis leave every resend to the caller.
func (oneShot) NoRetry() bool { return true }

// Args returns the words of the command. A command that was never asked for
// them cannot have been written: the call failed while it waited for a
// connection, however it failed.
func (c oneShot) Args() []any {
	c.written.Store(true)
	return c.Cmd.Args()
}

// run sends the script by its digest, and by its text when the server does not
// know it. The digest's copy was then refused unexecuted: at most one runs.
// written becomes true when one of them may have been written to a connection.
func (s *Script) run(ctx context.Context, p Processor, written *atomic.Bool, keys []string, args ...any) ([]any, error) {
	reply, err := send(ctx, p, written, "evalsha", s.sha, keys, args)
	if errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = send(ctx, p, written, "eval", s.source, keys, args)
	}
	return reply, err
}

func send(
	ctx context.Context, p Processor, written *atomic.Bool, verb, script string, keys []string, args []any,
) ([]any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, verb, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	cmd := oneShot{Cmd: redis.NewCmd(ctx, words...), written: written}
	cmd.SetFirstKeyPos(3)
	err := p.Process(ctx, cmd)
	if err != nil && !errors.Is(err, redis.Nil) {
		if !written.Load() && !Answered(err) {
			err = notSentError{err}
		}
		return nil, err
	}
	// redis.Nil looks like the server's refusal, but no script answers nil.
	reply, ok := cmd.Val().([]any)
	if !ok {
		return nil, unexpected(verb, []any{cmd.Val()})
	}
	return reply, nil
}
