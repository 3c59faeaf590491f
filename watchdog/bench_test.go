package watchdog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

func newBenchmarked(b *testing.B) *watchdog.Watchdog[string] {
	b.Helper()
	w, err := watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
		return all(watchdog.Renewed, keys)
	}, watchdog.Options[string]{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	return w
}

// The pair that each short hold of a lock costs, alone and beside leases that stay.
func BenchmarkKeepStop(b *testing.B) {
	for _, others := range []int{0, 1, 100_000} {
		b.Run(fmt.Sprintf("beside=%d", others), func(b *testing.B) {
			w := newBenchmarked(b)
			for range others {
				w.Keep("key", "group", time.Hour, time.Now())
			}
			b.ReportAllocs()
			for b.Loop() {
				w.Keep("key", "group", 30*time.Second, time.Now()).Stop()
			}
		})
	}
}

func BenchmarkKeepStopParallel(b *testing.B) {
	w := newBenchmarked(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Keep("key", "group", 30*time.Second, time.Now()).Stop()
		}
	})
}

func BenchmarkErr(b *testing.B) {
	l := newBenchmarked(b).Keep("key", "group", time.Hour, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// One interval of 100,000 leases: everything is renewed once.
func BenchmarkRenew100k(b *testing.B) {
	const leases = 100_000
	renewed := make(chan int, leases)
	w, err := watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
		renewed <- len(keys)
		return all(watchdog.Gone, keys)
	}, watchdog.Options[string]{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		due := time.Now().Add(200 * time.Millisecond) // when all are kept
		for range leases {
			w.Keep("key", "group", time.Hour, due.Add(-20*time.Minute))
		}
		<-time.After(time.Until(due) - time.Millisecond)
		b.StartTimer()
		for n := 0; n < leases; {
			n += <-renewed
		}
		if err := w.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/leases, "ns/lease")
}
