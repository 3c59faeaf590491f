package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

// envArgs makes the test binary an instance of the service with these arguments.
const envArgs = "STOCK_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(envArgs); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		return
	}
	redistest.Main(m)
}

// rig is what one test has: a server, a customer, and an item of its own.
type rig struct {
	server *redistest.Server
	rdb    *redis.Client
	web    *http.Client
	item   string
}

// newRig makes a rig with n pieces in stock. At the end of the test, when the
// instances have gone, nothing of their locks may be left.
func newRig(t *testing.T, n int) *rig {
	t.Helper()
	r := &rig{
		server: redistest.Shared(t),
		web:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}, Timeout: time.Minute},
		item:   strings.ReplaceAll(strings.TrimSuffix(redistest.Prefix(t), ":"), "/", "-"), // goes into a URL
	}
	r.rdb = r.server.Client(t)
	t.Cleanup(func() {
		r.server.CheckNoKeys(t, lockName(r.item))
		r.server.CheckNoChannels(t, "*"+lockName(r.item)+"*")
		ctx := context.WithoutCancel(t.Context())
		if err := r.rdb.Del(ctx, stockKey(r.item), reservedKey(r.item)).Err(); err != nil {
			t.Error(err)
		}
		r.web.CloseIdleConnections()
	})
	if err := r.rdb.Set(t.Context(), stockKey(r.item), n, 0).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// check compares what is left and what is reserved with what should be.
func (r *rig) check(t *testing.T, left, reserved int) {
	t.Helper()
	if l, n := r.counts(t); l != left || n != reserved {
		t.Errorf("left %d, reserved %d; want %d and %d", l, n, left, reserved)
	}
}

func (r *rig) counts(t *testing.T) (left, reserved int) {
	t.Helper()
	left, err := r.rdb.Get(t.Context(), stockKey(r.item)).Int()
	var all []int
	if err = errors.Join(err, r.rdb.HVals(t.Context(), reservedKey(r.item)).ScanSlice(&all)); err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		reserved += n
	}
	return left, reserved
}

// instance is a service in this process with clients of its own.
func (r *rig) instance(t *testing.T, o rlock.Options) (*Stock, *httptest.Server) {
	t.Helper()
	rdb := r.server.Client(t)
	locks, err := rlock.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	s := &Stock{rdb: rdb, locks: locks, wait: 10 * time.Second, work: 30 * time.Second}
	srv := httptest.NewServer(Handler(s, slog.New(slog.DiscardHandler)))
	t.Cleanup(srv.Close)
	return s, srv
}

// reply is what a customer is told; code 0 means no answer, for the reason in
// body.
type reply struct {
	code  int
	retry string
	body  string
}

func (r *rig) reserve(ctx context.Context, url, customer string, n int) reply {
	url += "/stock/" + r.item + "/reserve?n=" + strconv.Itoa(n) + "&for=" + customer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return reply{body: err.Error()}
	}
	res, err := r.web.Do(req)
	if err != nil {
		return reply{body: err.Error()}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{body: err.Error()}
	}
	return reply{res.StatusCode, res.Header.Get("Retry-After"), string(b)}
}

// reserveLater is reserve in a goroutine, which ends with the test's context.
func (r *rig) reserveLater(t *testing.T, url, customer string, n int) <-chan reply {
	t.Helper()
	got := make(chan reply, 1)
	go func() { got <- r.reserve(t.Context(), url, customer, n) }()
	return got
}

// process is a service in a process of its own.
type process struct {
	cmd *exec.Cmd
	out output
	url string
}

// output is what a process has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (r *rig) process(t *testing.T, args string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), os.Args[0])} // killed with the test's context
	p.cmd.Env = append(os.Environ(), envArgs+"=-addr 127.0.0.1:0 -redis "+r.server.Addr()+" "+args)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Wait() // an error if it was killed, or waited for before
		if t.Failed() {
			t.Logf("the instance with %s wrote:\n%s", args, &p.out)
		}
	})
	serving := regexp.MustCompile(`(?m)^serving (\S+)$`)
	redistest.Eventually(t, 30*time.Second, func() bool {
		return serving.MatchString(p.out.String())
	}, "waiting for an instance to serve")
	p.url = "http://" + serving.FindStringSubmatch(p.out.String())[1]
	return p
}

// awaitInside waits until the process is between GET and SET.
func (p *process) awaitInside(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(p.out.String(), "inside ")
	}, "waiting for an instance to be inside")
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
