package pubsub_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

// BenchmarkWake measures from before a PUBLISH to its arrival at the waiter,
// the PUBLISH command's own round trip included.
func BenchmarkWake(b *testing.B) {
	srv := startServer(b)
	admin := srv.client(b, nil)
	rdb := srv.client(b, nil)
	publish := func() { mustPublish(b, admin, "ch") }
	b.Run("hub", func(b *testing.B) {
		s := mustSubscribe(b, newHub(b, rdb, pubsub.Options{}), "ch")
		b.ReportAllocs()
		for b.Loop() {
			publish()
			<-s.Wake()
		}
	})
	b.Run("go-redis", func(b *testing.B) {
		ps := rdb.Subscribe(context.Background(), "ch")
		defer ps.Close() //nolint:errcheck // Only read from.
		if _, err := ps.Receive(context.Background()); err != nil {
			b.Fatal(err)
		}
		messages := ps.Channel(redis.WithChannelHealthCheckInterval(0))
		b.ReportAllocs()
		for b.Loop() {
			publish()
			<-messages
		}
	})
}

// BenchmarkSubscribe measures Subscribe and Close of a name that lingers, and of a new one.
func BenchmarkSubscribe(b *testing.B) {
	srv := startServer(b)
	h := newHub(b, srv.client(b, nil), pubsub.Options{})
	b.Run("lingering", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustSubscribe(b, h, "ch").Close()
		}
	})
	b.Run("new", func(b *testing.B) {
		i := 0
		for b.Loop() {
			mustSubscribe(b, h, fmt.Sprint("ch", i)).Close()
			i++
		}
	})
	b.Run("new/parallel", func(b *testing.B) {
		var mu sync.Mutex
		i := 0
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				mu.Lock()
				i++
				name := fmt.Sprint("par", i)
				mu.Unlock()
				mustSubscribe(b, h, name).Close()
			}
		})
	})
}

// BenchmarkMemory reports the heap that a subscribed channel with one waiter
// takes, its name and go-redis' own note of it included.
func BenchmarkMemory(b *testing.B) {
	const n = 5000
	srv := startServer(b)
	h := newHub(b, srv.client(b, nil), pubsub.Options{})
	for b.Loop() {
		before := heap()
		subs := subscribeMany(b, h, n)
		b.ReportMetric(float64(heap()-before)/n, "B/channel")
		for _, s := range subs {
			s.Close()
		}
		admin := srv.client(b, nil)
		eventually(b, "the connection is closed", func() bool { return len(subscribers(b, admin)) == 0 })
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
