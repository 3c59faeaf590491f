package pubsub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/pubsub"
)

func TestSubscribeReturnsAfterConfirmation(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	for i := range 500 {
		name := fmt.Sprint("ch", i)
		s := mustSubscribe(t, h, name)
		if n := mustPublish(t, admin, name); n != 1 {
			t.Fatalf("round %d: %d receivers of a publish right after Subscribe", i, n)
		}
		mustWake(t, s, "published right after Subscribe")
		s.Close()
	}
}

// A rejoin that meets an UNSUBSCRIBE on the wire must end up subscribed.
func TestRejoinOvertakesUnsubscribe(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{Linger: time.Nanosecond})
	defer mustSubscribe(t, h, "keeps the connection").Close()
	first := subscribers(t, admin)
	for i := range 500 {
		s := mustSubscribe(t, h, "ch")
		if n := mustPublish(t, admin, "ch"); n != 1 {
			t.Fatalf("round %d: %d receivers", i, n)
		}
		mustWake(t, s, "published right after a rejoin")
		s.Close()
		for range rand.IntN(3) {
			runtime.Gosched()
		}
	}
	if last := subscribers(t, admin); fmt.Sprint(first) != fmt.Sprint(last) {
		t.Errorf("connections %v became %v", first, last)
	}
}

func TestChurn(t *testing.T) {
	for _, linger := range []time.Duration{time.Nanosecond, time.Millisecond, pubsub.Options{}.Linger} {
		t.Run(linger.String(), func(t *testing.T) { churn(t, linger) })
	}
}

func churn(t *testing.T, linger time.Duration) {
	t.Helper()
	srv := startServer(t)
	ctx := t.Context()
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{Linger: linger})
	steady := mustSubscribe(t, h, "steady")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				s, err := h.Subscribe(ctx, "busy")
				if err != nil {
					t.Error(err)
					return
				}
				if err := admin.Publish(ctx, "busy", "").Err(); err != nil {
					t.Error(err)
				}
				timeout := time.NewTimer(patience)
				select {
				case <-s.Wake():
				case <-timeout.C:
					t.Error("a wake was lost")
				}
				timeout.Stop()
				s.Close()
			}
		})
	}
	for range 300 {
		mustPublish(t, admin, "steady")
		mustWake(t, steady, "published while others came and went")
	}
	wg.Wait()
	steady.Close()
	eventually(t, "nothing is subscribed", func() bool {
		n := admin.PubSubNumSub(t.Context(), "steady", "busy").Val()
		return n["steady"] == 0 && n["busy"] == 0 && len(subscribers(t, admin)) == 0
	})
}

func TestNothingLeftAfterLinger(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	rdb := srv.client(t, nil)
	admin.Ping(t.Context())
	before := goleak.IgnoreCurrent()
	h := newHub(t, rdb, pubsub.Options{Linger: 20 * time.Millisecond})
	var subs []*pubsub.Subscription
	for i := range 10 {
		subs = append(subs, mustSubscribe(t, h, fmt.Sprint("ch", i)))
	}
	if n := len(subscribers(t, admin)); n != 1 {
		t.Fatalf("%d connections for 10 channels", n)
	}
	for _, s := range subs {
		s.Close()
		s.Close()
	}
	eventually(t, "the connection is closed", func() bool { return len(subscribers(t, admin)) == 0 })
	if chs := admin.PubSubChannels(t.Context(), "*").Val(); len(chs) != 0 {
		t.Errorf("still subscribed: %v", chs)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	mustWakeOnPublish(t, admin, mustSubscribe(t, h, "again"), "again")
}

func mustWakeOnPublish(t *testing.T, c redis.UniversalClient, s *pubsub.Subscription, channel string) {
	t.Helper()
	drain(s)
	mustPublish(t, c, channel)
	mustWake(t, s, "published on "+channel)
}

func TestFiveThousandChannels(t *testing.T) {
	const n = 5000
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	goroutines := runtime.NumGoroutine()
	subs := subscribeMany(t, h, n)
	if ids := subscribers(t, admin); len(ids) != 1 {
		t.Errorf("%d connections", len(ids))
	}
	eventually(t, "the number of goroutines does not grow with the channels", func() bool {
		return runtime.NumGoroutine() <= goroutines+10
	})
	publishAll(t, admin, n)
	for i, s := range subs {
		mustWake(t, s, fmt.Sprint("channel ", i))
	}
	killSubscribers(t, admin)
	for i, s := range subs {
		mustWake(t, s, fmt.Sprint("re-subscription of channel ", i))
	}
	for _, s := range subs {
		s.Close()
	}
	eventually(t, "the connection is closed", func() bool { return len(subscribers(t, admin)) == 0 })
}

func subscribeMany(tb testing.TB, h *pubsub.Hub, n int) []*pubsub.Subscription {
	tb.Helper()
	subs := make([]*pubsub.Subscription, n)
	var wg sync.WaitGroup
	for i := range subs {
		wg.Go(func() {
			s, err := h.Subscribe(context.Background(), fmt.Sprint("ch", i))
			if err != nil {
				tb.Error(err)
			}
			subs[i] = s
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return subs
}

func publishAll(tb testing.TB, c *redis.Client, n int) {
	tb.Helper()
	if _, err := c.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for i := range n {
			p.Publish(context.Background(), fmt.Sprint("ch", i), "")
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
}

func TestSlowReaderDelaysNobody(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	slow := mustSubscribe(t, h, "flood")
	other := mustSubscribe(t, h, "other")
	before := subscribers(t, admin)
	big := strings.Repeat("\r\n\x00$", 25)
	for range 20 {
		if _, err := admin.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 1000 {
				p.Publish(t.Context(), "flood", big)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		mustWakeOnPublish(t, admin, other, "other")
	}
	if after := subscribers(t, admin); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("connections %v became %v", before, after)
	}
	mustWake(t, slow, "20,000 messages")
	select {
	case <-slow.Wake():
		t.Error("Wake holds more than one value")
	default:
	}
}

// All waiters of a channel are woken, not one of them.
func TestEveryWaiterOfAChannelWakes(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	var subs []*pubsub.Subscription
	for range 50 {
		subs = append(subs, mustSubscribe(t, h, "ch"))
	}
	subs[7].Close()
	subs[49].Close()
	mustPublish(t, admin, "ch")
	for _, s := range subs {
		mustWake(t, s, "published, or closed")
	}
}

// A real server in cluster mode, whose one node has all slots.
func TestCluster(t *testing.T) {
	srv := startServer(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
	if err := srv.client(t, nil).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	eventually(t, "the cluster is up", func() bool { return rdb.Set(t.Context(), "k", "v", 0).Err() == nil })
	h := newHub(t, rdb, pubsub.Options{})
	a, b := mustSubscribe(t, h, "a"), mustSubscribe(t, h, "b")
	mustWakeOnPublish(t, rdb, a, "a")
	mustWakeOnPublish(t, rdb, b, "b")
	killSubscribers(t, srv.client(t, nil))
	mustWake(t, a, "re-subscription")
	mustWake(t, b, "re-subscription")
}
