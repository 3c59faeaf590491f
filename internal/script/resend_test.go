package script_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
)

// sends are the calls of this package, each once on a lock.
func sends(r *rig, p script.Processor) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := script.Acquire{Key: r.key, Owner: mine, Depth: 1, Lease: lease}.Send(ctx, p)
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := r.toRelease(1).Send(ctx, p)
			return err
		},
		"renew": func(ctx context.Context) error {
			_, _, err := script.Renew(ctx, p, []script.Renewal{{Key: r.key, Owner: mine, Lease: lease}})
			return err
		},
		"info": func(ctx context.Context) error {
			_, err := script.Info(ctx, p, r.key)
			return err
		},
	}
}

// TestUnknownScript: a server that does not know a script is asked twice, by
// digest and by text, and knows it from then on.
func TestUnknownScript(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	r := rigOn(srv.Client(t), "lock")
	for name, send := range sends(r, r.rdb) {
		if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct{ evalsha, eval int64 }{{1, 1}, {1, 0}} {
			got := srv.Commands(t, func() {
				if err := send(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
			if got["evalsha"] != want.evalsha || got["eval"] != want.eval {
				t.Errorf("%s: %v; want %d by digest and %d by text", name, got, want.evalsha, want.eval)
			}
		}
	}
}

// lossy is a connection that loses the reply to a script and then breaks. The
// server has executed the script by then.
type lossy struct {
	net.Conn
	armed  *atomic.Bool // for all connections of a client: the next script's reply gets lost
	lose   atomic.Bool
	broken atomic.Bool
}

func (c *lossy) Write(b []byte) (int, error) {
	if strings.Contains(strings.ToLower(string(b)), "evalsha") && c.armed.Load() {
		c.lose.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossy) Read(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		c.broken.Store(true)
		return 0, io.EOF
	}
	return n, err
}

// lossyClient returns a client that may resend three times by its own rules,
// and a switch that makes it lose replies.
func lossyClient(t *testing.T, srv *redistest.Server) (*redis.Client, *atomic.Bool) {
	t.Helper()
	armed := new(atomic.Bool)
	rdb := srv.Client(t, func(o *redis.Options) {
		o.MaxRetries = 3
		o.MinRetryBackoff, o.MaxRetryBackoff = time.Millisecond, time.Millisecond
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &lossy{Conn: conn, armed: armed}, nil
		}
	})
	return rdb, armed
}

// TestSentOnce: however eager the client is to resend, one copy of a script
// reaches the server, and the error says that its outcome is unknown.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	rdb, armed := lossyClient(t, srv)
	r := rigOn(srv.Client(t), "lock")
	for name, s := range scripts() {
		if err := r.rdb.ScriptLoad(t.Context(), s.Source()).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	armed.Store(true)
	for name, send := range sends(r, rdb) {
		got := srv.Commands(t, func() {
			err := send(t.Context())
			if !errors.Is(err, io.EOF) || script.Answered(err) || script.NotSent(err) || !script.Passing(err) {
				t.Errorf("%s: %v, want an EOF with the outcome unknown", name, err)
			}
		})
		if got["evalsha"] != 1 || got["eval"] != 0 {
			t.Errorf("%s: the server executed %v, want one evalsha", name, got)
		}
	}
	// The rig does what it claims: a plain command is sent four times.
	got := srv.Commands(t, func() {
		cmd := redis.NewCmd(t.Context(), "evalsha", script.InfoScript.SHA(), 1, r.key)
		if err := rdb.Process(t.Context(), cmd); !errors.Is(err, io.EOF) {
			t.Errorf("a plain command: %v", err)
		}
	})
	if got["evalsha"] != 4 {
		t.Errorf("a plain command: the server executed %v, want four evalsha", got)
	}
}

// TestSentOnceOnTime: a reply that is late is not asked for again either.
func TestSentOnceOnTime(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	rdb := srv.Client(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = 3, 50*time.Millisecond })
	r := rigOn(srv.Client(t), "lock")
	if err := rdb.ScriptLoad(t.Context(), script.AcquireScript.Source()).Err(); err != nil {
		t.Fatal(err)
	}
	monitor := srv.Monitor(t)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	err := sends(r, rdb)["acquire"](t.Context())
	if resumed := srv.Resume(); resumed != nil {
		t.Fatal(resumed)
	}
	timeout, ok := errors.AsType[net.Error](err)
	if !ok || !timeout.Timeout() || script.Answered(err) || script.NotSent(err) {
		t.Errorf("%v, want a timeout with the outcome unknown", err)
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return r.rdb.Exists(t.Context(), r.key).Val() == 1 },
		"the copy in the socket is executed")
	var copies int
	for _, call := range monitor.Stop(t) {
		if call.Name() == "EVALSHA" {
			copies++
		}
	}
	if copies != 1 {
		t.Errorf("%d copies, want one", copies)
	}
}

// TestManyAtOnce calls every script from many goroutines: a script is shared.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	rdb := srv.Client(t)
	prefix := redistest.Prefix(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r := rigOn(rdb, prefix+count(i))
			for _, name := range []string{"acquire", "renew", "info", "release"} {
				if err := sends(r, rdb)[name](t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	srv.CheckNoKeys(t, prefix)
}
