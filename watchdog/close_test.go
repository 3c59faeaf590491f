package watchdog_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		causes := make(chan error, 1)
		r.server.answer = func(ctx context.Context, _ int, c call) []watchdog.Outcome {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return all(watchdog.Renewed, c.keys)
		}
		inFlight, waiting := r.keep("in flight", 30*s), r.Keep("waiting", "g", 60*s, time.Now())
		stopped := r.keep("stopped", 60*s)
		stopped.Stop()
		lost := waiting.Lost()
		r.until(12 * s)
		for range 2 {
			if err := r.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if !isClosed(lost) {
				t.Error("the channel is open after Close")
			}
			wantErr(t, inFlight, watchdog.ErrClosed)
			wantErr(t, waiting, watchdog.ErrClosed)
			wantErr(t, stopped, nil)
		}
		if cause := <-causes; !errors.Is(cause, watchdog.ErrClosed) {
			t.Errorf("the context of the running call ended by %v; want ErrClosed", cause)
		}
		if !inFlight.ValidUntil().Equal(r.server.began.Add(12 * s)) {
			t.Error("ValidUntil is later than Close, or an answer after Close was heard")
		}
		after := r.keep("after", 30*s)
		wantErr(t, after, watchdog.ErrClosed)
		r.until(100 * s)
		if n := len(r.server.recorded()); n != 1 {
			t.Errorf("%d calls; want none after Close", n)
		}
		got := r.losses()
		slices.SortFunc(got, func(a, b told) int { return len(a.key) - len(b.key) })
		want := []told{{"after", watchdog.ErrClosed, 12 * s}, {"waiting", watchdog.ErrClosed, 12 * s}, {"in flight", watchdog.ErrClosed, 12 * s}}
		if !slices.Equal(got, want) {
			t.Errorf("OnLost was told %v; want %v", got, want)
		}
		r.wantIdle()
	})
}

func TestCloseOfALeaseThatHadRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		l := r.keep("k", 30*s)
		r.StallTimer()
		r.until(30 * s)
		r.close()
		wantErr(t, l, watchdog.ErrExpired)
	})
}

func TestCloseDoesNotWaitForAHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		release := make(chan struct{})
		r.server.answer = func(context.Context, int, call) []watchdog.Outcome { <-release; return nil }
		r.keep("k", 30*s)
		r.until(10 * s)
		r.close()
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		if r.Wait(ctx) == nil {
			t.Error("Wait returned nil although a call is running")
		}
		close(release)
		if err := r.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v after the call has returned", err)
		}
		r.wantIdle()
	})
}
