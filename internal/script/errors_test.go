package script_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
)

// replied is an error reply as go-redis hands it out.
func replied(t *testing.T, rdb *redis.Client, text string) error {
	t.Helper()
	err := rdb.Eval(t.Context(), "return redis.error_reply(ARGV[1])", nil, text).Err()
	if err == nil {
		t.Fatalf("no error for %q", text)
	}
	return err
}

// TestErrorReplies lets a server say each error and asks what it means.
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	for _, c := range []struct {
		text              string
		passing, oneByOne bool
	}{
		{text: "LOADING Redis is loading the dataset in memory", passing: true},
		{text: "BUSY Redis is busy running a script.", passing: true},
		{text: "READONLY You can't write against a read only replica.", passing: true},
		{text: "MASTERDOWN Link with MASTER is down", passing: true},
		{text: "CLUSTERDOWN The cluster is down", passing: true},
		{text: "TRYAGAIN Multiple keys request during rehashing of slot", passing: true, oneByOne: true},
		{text: "MOVED 1 127.0.0.1:7000", passing: true},
		{text: "ASK 1 127.0.0.1:7000", passing: true},
		{text: "ERR max number of clients reached", passing: true},
		{text: "CROSSSLOT Keys in request don't hash to the same slot", oneByOne: true},
		{text: "NOPERM this user has no permissions"},
		{text: "NOAUTH Authentication required."},
		{text: "WRONGPASS invalid username-password pair"},
		{text: "OOM command not allowed when used memory > 'maxmemory'."},
		{text: "MISCONF Redis is configured to save RDB snapshots"},
		{text: "ERR unknown command 'evalsha'"},
	} {
		err := fmt.Errorf("wrapped: %w", replied(t, rdb, c.text))
		if !script.Answered(err) || script.NotSent(err) {
			t.Errorf("%q: answered %v, not sent %v", err, script.Answered(err), script.NotSent(err))
		}
		if script.Passing(err) != c.passing || script.OneByOne(err) != c.oneByOne || script.WrongType(err) {
			t.Errorf("%q: passing %v, one by one %v", err, script.Passing(err), script.OneByOne(err))
		}
	}
	if err := replied(t, rdb, "WRONGTYPE Operation against a key"); !script.WrongType(err) || script.Passing(err) {
		t.Errorf("%v: not seen as a wrong type", err)
	}
}

// TestConnectionErrors: what came from no server.
func TestConnectionErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err              error
		notSent, passing bool
	}{
		{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, notSent: true, passing: true},
		{err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, passing: true},
		{err: &net.OpError{Op: "write", Err: syscall.EPIPE}, passing: true},
		{err: io.EOF, passing: true},
		{err: context.DeadlineExceeded, passing: true},
		{err: redis.ErrPoolTimeout, notSent: true, passing: true},
		{err: redis.ErrPoolExhausted, notSent: true, passing: true},
		{err: redis.ErrClosed, notSent: true},
		{err: script.ErrReply},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		if script.Answered(err) || script.NotSent(err) != c.notSent || script.Passing(err) != c.passing {
			t.Errorf("%v: answered %v, not sent %v, passing %v",
				err, script.Answered(err), script.NotSent(err), script.Passing(err))
		}
	}
}

// TestNobodyListens: a refused connection shows that nothing was sent.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
	defer rdb.Close() //nolint:errcheck // it never had a connection
	_, err = script.Info(t.Context(), rdb, "lock")
	if !script.NotSent(err) || !script.Passing(err) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refused connection that was not sent", err)
	}
}
