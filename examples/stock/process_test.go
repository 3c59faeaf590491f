package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
)

func TestHammerProcesses(t *testing.T) {
	const pieces = 1000
	r := newRig(t, pieces)
	var urls []string
	var processes []*process
	for range 3 {
		p := r.process(t, "-lease 5s")
		urls, processes = append(urls, p.url), append(processes, p)
	}
	r.hammer(t, urls, pieces, 30)
	for _, p := range processes {
		p.signal(t, syscall.SIGTERM)
	}
	for _, p := range processes {
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestLostByStop: an instance is stopped between GET and SET for longer than its
// lease, and another one goes in meanwhile.
func TestLostByStop(t *testing.T) {
	t.Parallel() // it mostly waits; parallel tests run after the busy ones
	for name, args := range map[string]string{
		"woken by the loss":                    "-lease 1s -hold 1m",
		"pause and lease are both over by now": "-lease 3s -hold 2500ms",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 10)
			_, srvB := r.instance(t, rlock.Options{})
			a := r.process(t, args)
			answerA := r.reserveLater(t, a.url, "a", 5)
			a.awaitInside(t)
			a.signal(t, syscall.SIGSTOP)
			// The other instance gets in when the lease is over.
			if got := r.reserve(t.Context(), srvB.URL, "b", 3); got.code != http.StatusOK {
				t.Errorf("the other instance: %+v", got)
			}
			a.signal(t, syscall.SIGCONT)
			if got := <-answerA; got.code != http.StatusServiceUnavailable {
				t.Errorf("the stopped instance: %+v, want 503", got)
			}
			r.check(t, 7, 3)
		})
	}
}

// TestGracefulShutdown: after SIGTERM who is inside finishes, and who waits is
// sent away before that.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 10)
	a := r.process(t, "-lease 5s -hold 3s")
	inside := r.reserveLater(t, a.url, "a", 2)
	a.awaitInside(t)
	waiting := r.reserveLater(t, a.url, "b", 2)
	redistest.Eventually(t, 10*time.Second, func() bool {
		channels, err := r.rdb.PubSubChannels(t.Context(), "*"+lockName(r.item)+"*").Result()
		return err == nil && len(channels) == 1
	}, "for the second request to wait for the lock")
	a.signal(t, syscall.SIGTERM)
	if got := <-waiting; got.code != http.StatusServiceUnavailable || !strings.Contains(got.body, rlock.ErrClosed.Error()) {
		t.Errorf("the request that waits: %+v, want 503 and %q", got, rlock.ErrClosed)
	}
	r.check(t, 10, 0) // it did not wait for the one inside
	if got := <-inside; got.code != http.StatusOK {
		t.Errorf("the request inside: %+v, want 200", got)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Error(err)
	}
	r.check(t, 8, 2)
}
