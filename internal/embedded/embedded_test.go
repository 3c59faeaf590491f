package embedded_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart(t *testing.T) {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = c.Close() }()
	if err := c.Set(t.Context(), "k", "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"k"}).Text()
	if err != nil || got != "v" {
		t.Errorf("GET by script: %q, %v", got, err)
	}
}

// TestClockRuns waits, in real time, for a key to expire without any help.
func TestClockRuns(t *testing.T) {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = c.Close() }()
	if err := c.Set(t.Context(), "k", "v", 20*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for c.Exists(t.Context(), "k").Val() == 1 {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the key of 20 ms is there after 10 s")
		}
	}
}

func TestCloseFreesThePort(t *testing.T) {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	s.Close()
	s.Close()
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
		_ = c.Close()
		t.Errorf("%s accepts after Close", addr)
	}
	if s.Addr() != addr {
		t.Errorf("the address changed to %q", s.Addr())
	}
}

func TestClosedServer(t *testing.T) {
	s := embedded.NewInBubble()
	before := s.Client()
	if err := before.Ping(t.Context()).Err(); err != nil || s.Addr() != "" {
		t.Fatalf("PING through a pipe: %v; address %q", err, s.Addr())
	}
	s.Close()
	if _, err := s.Dial(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Close: %v, want net.ErrClosed", err)
	}
	for _, c := range []*redis.Client{before, s.Client()} {
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("a client after Close: %v, want redis.ErrClosed", err)
		}
	}
}

func TestBubbleExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := embedded.NewInBubble()
		defer s.Close()
		c := s.Client()
		if err := c.Set(t.Context(), "k", "v", 30*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		set := time.Now()
		<-time.After(30*time.Second - time.Millisecond)
		if ttl := c.PTTL(t.Context(), "k").Val(); ttl != time.Millisecond {
			t.Errorf("PTTL after 29.999 s: %v, want 1ms", ttl)
		}
		<-time.After(time.Millisecond)
		if n, err := c.Exists(t.Context(), "k").Result(); n != 0 || err != nil {
			t.Errorf("after 30 s: EXISTS %d, %v; want 0", n, err)
		}
		if spent := time.Since(set); spent != 30*time.Second {
			t.Errorf("the bubble's clock moved by %v, want 30s", spent)
		}
	})
}

func TestBubblePubSub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := embedded.NewInBubble()
		defer s.Close()
		ps := s.Client().Subscribe(t.Context(), "ch")
		defer func() { _ = ps.Close() }()
		if _, err := ps.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		publisher := s.Client(func(o *redis.Options) { o.Protocol = 2 })
		msgs := ps.Channel()
		start := time.Now()
		time.AfterFunc(time.Hour, func() { publisher.Publish(t.Context(), "ch", "hello") })
		if msg := <-msgs; msg.Payload != "hello" || time.Since(start) != time.Hour {
			t.Errorf("%v after %v, want hello after 1h", msg, time.Since(start))
		}
	})
}
