package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

func TestKilledConnectionIsReplacedAndWakesAll(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	subs := subscribeMany(t, h, 250) // More than two chunks.
	for round := range 5 {
		killSubscribers(t, admin)
		for i, s := range subs {
			mustWake(t, s, fmt.Sprintf("round %d: re-subscription of channel %d", round, i))
			if !s.Confirmed() {
				t.Fatalf("round %d: woken, but channel %d is not confirmed", round, i)
			}
		}
	}
	publishAll(t, admin, len(subs))
	for _, s := range subs {
		mustWake(t, s, "published after re-subscriptions")
	}
}

func TestServerRestart(t *testing.T) {
	srv := startServer(t)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	old := mustSubscribe(t, h, "old")
	srv.kill()
	eventually(t, "the lost connection is noticed", func() bool { return !old.Confirmed() })
	if err := old.Err(); err != nil {
		t.Fatalf("a lost connection ended the subscription: %v", err)
	}
	fresh := make(chan *pubsub.Subscription)
	go func() {
		s, err := h.Subscribe(context.Background(), "fresh")
		if err != nil {
			t.Error(err)
		}
		fresh <- s
	}()
	srv.start(t)
	mustWake(t, old, "re-subscription after a restart")
	admin := srv.client(t, nil)
	mustWakeOnPublish(t, admin, old, "old")
	mustWakeOnPublish(t, admin, <-fresh, "fresh")
}

func TestContextEndsWhileServerIsDown(t *testing.T) {
	srv := startServer(t)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	srv.kill()
	cause := errors.New("the shop is shut")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
	defer cancel()
	_, err := h.Subscribe(ctx, "ch")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
		t.Errorf("the context's end is not in %v", err)
	}
	if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the connection error is not in %v", err)
	}
	canceled, cancel2 := context.WithCancel(t.Context())
	cancel2()
	if _, err := h.Subscribe(canceled, "ch"); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}

// A stopped server keeps accepting bytes: only the missing PONG shows it.
func TestStoppedServerIsFound(t *testing.T) {
	srv := startServer(t)
	h := newHub(t, srv.client(t, nil), pubsub.Options{PingEvery: 50 * time.Millisecond, PongWait: 200 * time.Millisecond})
	s := mustSubscribe(t, h, "ch")
	srv.signal(t, syscall.SIGSTOP)
	eventually(t, "the stopped server is found", func() bool { return !s.Confirmed() })
	srv.signal(t, syscall.SIGCONT)
	mustWake(t, s, "re-subscription after SIGCONT")
	mustWakeOnPublish(t, srv.client(t, nil), s, "ch")
}

// Nothing may wait for a server that hangs, although each call into go-redis
// takes half a minute here.
func TestNothingWaitsForAHungServer(t *testing.T) {
	srv := startServer(t)
	rdb := srv.client(t, func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 30*time.Second, 30*time.Second, 30*time.Second
	})
	h := newHub(t, rdb, pubsub.Options{PingEvery: 50 * time.Millisecond, PongWait: 200 * time.Millisecond})
	a, b := mustSubscribe(t, h, "a"), mustSubscribe(t, h, "b")
	srv.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { srv.signal(t, syscall.SIGCONT) })
	eventually(t, "the stopped server is found", func() bool { return !a.Confirmed() })

	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Subscribe(ctx, "c"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, pubsub.ErrSilent) {
		t.Errorf("Subscribe: %v", err)
	}
	a.Close()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("waited %v for a hung server", d)
	}
	mustWake(t, b, "Close of the hub")
	if err := b.Err(); !errors.Is(err, pubsub.ErrClosed) {
		t.Errorf("Err after Close: %v", err)
	}
}

func TestClose(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	a, b := mustSubscribe(t, h, "a"), mustSubscribe(t, h, "b")
	b.Close()
	mustWake(t, b, "own Close")
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	mustWake(t, a, "Close of the hub")
	for _, s := range []*pubsub.Subscription{a, b} {
		if s.Close(); !errors.Is(s.Err(), pubsub.ErrClosed) || s.Confirmed() {
			t.Errorf("after Close: Err %v, Confirmed %v", s.Err(), s.Confirmed())
		}
		select {
		case <-s.Wake():
			t.Error("Wake fired twice")
		default:
		}
	}
	if _, err := h.Subscribe(t.Context(), "c"); !errors.Is(err, pubsub.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}
	eventually(t, "the connection is closed", func() bool { return len(subscribers(t, admin)) == 0 })
}

func TestCloseEndsSubscribe(t *testing.T) {
	srv := startServer(t)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	srv.kill()
	result := make(chan error)
	go func() {
		_, err := h.Subscribe(context.Background(), "ch")
		result <- err
	}()
	_ = h.Close()
	if err := <-result; !errors.Is(err, pubsub.ErrClosed) {
		t.Errorf("Subscribe during Close: %v", err)
	}
}

// Once its client is closed a hub cannot recover, and says so.
func TestClosedClient(t *testing.T) {
	srv := startServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.addr()})
	h := newHub(t, rdb, pubsub.Options{})
	s := mustSubscribe(t, h, "ch")
	_ = rdb.Close()
	eventually(t, "the subscription ends", func() bool { return errors.Is(s.Err(), redis.ErrClosed) })
	mustWake(t, s, "the end")
	if _, err := h.Subscribe(t.Context(), "ch"); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Subscribe: %v", err)
	}
}

// Subscribers, leavers and killed connections, all at once.
func TestChurnUnderKilledConnections(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{Linger: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stop := make(chan struct{})
	var killer, churners sync.WaitGroup
	killer.Go(func() {
		tick := time.NewTicker(7 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				admin.ClientKillByFilter(ctx, "type", "pubsub")
			}
		}
	})
	for g := range 8 {
		churners.Go(func() {
			for i := range 50 {
				s, err := h.Subscribe(ctx, fmt.Sprint("ch", (g+i)%5))
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			}
		})
	}
	churners.Wait()
	close(stop)
	killer.Wait()
	mustWakeOnPublish(t, admin, mustSubscribe(t, h, "ch0"), "ch0")
}
