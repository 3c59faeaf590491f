package faultproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	// enough bounds what must come. It is only waited for in a failing test.
	enough = 20 * time.Second
	// silence is how long a test listens to be sure that nothing comes.
	silence = 50 * time.Millisecond
)

// rig is a proxy before the shared server, a client that does not go through
// it, and a prefix for keys.
type rig struct {
	*faultproxy.Proxy
	direct *redis.Client
	prefix string
}

func newRig(t *testing.T) rig {
	t.Helper()
	s := redistest.Shared(t)
	r := rig{direct: s.Client(t), prefix: redistest.Prefix(t)}
	t.Cleanup(func() {
		// The context of the test has ended by now.
		if err := r.direct.Del(context.WithoutCancel(t.Context()), r.key()).Err(); err != nil {
			t.Error(err)
		}
		s.CheckNoKeys(t, r.prefix)
		s.CheckNoChannels(t, r.prefix+"*")
	})
	r.Proxy = faultproxy.New(t, s.Addr()) // closed before the check, which runs last
	return r
}

// key is the one key that a test needs; it is deleted afterwards.
func (r rig) key() string { return r.prefix + "k" }

// count is the value of the key, read past the proxy.
func (r rig) count(t *testing.T) int {
	t.Helper()
	n, err := r.direct.Get(t.Context(), r.key()).Int()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		t.Fatal(err)
	}
	return n
}

// awaitCount waits until the key has the value, read past the proxy.
func (r rig) awaitCount(t *testing.T, want int) {
	t.Helper()
	redistest.Eventually(t, enough, func() bool { return r.count(t) == want }, "the count to be %d", want)
}

// wire is a client that shows what arrives on one connection.
type wire struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (r rig) dial(t *testing.T) wire {
	t.Helper()
	nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return wire{Conn: nc, t: t, r: bufio.NewReader(nc)}
}

// send sends commands in one write, each given as words.
func (w wire) send(commands ...string) {
	w.t.Helper()
	var b strings.Builder
	for _, c := range commands {
		words := strings.Fields(c)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	if _, err := w.Write([]byte(b.String())); err != nil {
		w.t.Fatal(err)
	}
}

// line returns the next line that arrives.
func (w wire) line() (string, error) {
	if err := w.SetReadDeadline(time.Now().Add(enough)); err != nil {
		return "", err
	}
	text, err := w.r.ReadString('\n')
	return strings.TrimRight(text, "\r\n"), err
}

// expect fails the test unless exactly these lines arrive next.
func (w wire) expect(lines ...string) {
	w.t.Helper()
	for _, want := range lines {
		if got, err := w.line(); err != nil || got != want {
			w.t.Fatalf("arrived: %q, %v; want %q", got, err, want)
		}
	}
}

// expectSilence fails the test when something arrives, or the connection ends.
func (w wire) expectSilence() {
	w.t.Helper()
	if err := w.SetReadDeadline(time.Now().Add(silence)); err != nil {
		w.t.Fatal(err)
	}
	text, err := w.r.ReadString('\n')
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() { //nolint:errorlint // net returns it as it is
		w.t.Fatalf("arrived: %q, %v; want silence", text, err)
	}
}

// await receives from a channel that is bound to be ready.
func await(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(enough):
		t.Fatalf("not within %v: %s", enough, what)
	}
}
