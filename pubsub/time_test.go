package pubsub_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/pubsub"
)

func TestPingAfterQuietOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		s := mustSubscribe(t, bubbleHub(t, rdb), "ch")
		pass(7 * time.Second)
		want(t, w.take(), "0s dial", "0s subscribe ch", "3s ping", "6s ping")
		for range 10 { // A message every 2.9 s is life enough.
			w.Publish("ch", "x")
			pass(2900 * time.Millisecond)
			drain(s)
		}
		want(t, w.take())
		if !s.Confirmed() {
			t.Error("not confirmed")
		}
	})
}

func TestDeadConnectionIsFoundInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		s := mustSubscribe(t, bubbleHub(t, rdb), "ch")
		pass(time.Second)
		w.Publish("ch", "x")
		pass(0)
		drain(s)
		w.setMute(true)
		w.Publish("ch", "lost")
		pass(5*time.Second - 1)
		if !s.Confirmed() {
			t.Error("given up before PingEvery + PongWait")
		}
		w.onDial(dialRefused)
		pass(1)
		if s.Confirmed() {
			t.Error("not found after PingEvery + PongWait")
		}
		select {
		case <-s.Wake():
			t.Error("woken although the message was lost")
		default:
		}
		w.onDial(dialOK)
		w.setMute(false)
		pass(time.Second)
		mustWake(t, s, "re-subscription")
		got := w.take()
		slices.Sort(got[3:5]) // They happen in the same moment, in any order.
		want(t, got[:5], "0s dial", "0s subscribe ch", "4s ping", "6s close", "6s dial")
	})
}

// An answer within PongWait is in time, and anything is an answer.
func TestLateAnswerIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		s := mustSubscribe(t, bubbleHub(t, rdb), "ch")
		w.setMute(true) // Swallows the PONG.
		pass(5*time.Second - 1)
		w.setMute(false)
		w.Publish("ch", "x")
		pass(4 * time.Second)
		if !s.Confirmed() {
			t.Error("given up although a message arrived")
		}
		want(t, w.take()[:3], "0s dial", "0s subscribe ch", "3s ping")
	})
}

func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		h := bubbleHub(t, rdb)
		keep := mustSubscribe(t, h, "keep")
		for range 3 { // A rejoin within Linger sends nothing.
			mustSubscribe(t, h, "ch").Close()
			pass(499 * time.Millisecond)
		}
		want(t, w.take(), "0s dial", "0s subscribe keep", "0s subscribe ch")
		pass(time.Millisecond)
		want(t, w.take(), "1.498s unsubscribe ch")
		keep.Close()
		pass(499 * time.Millisecond)
		keep = mustSubscribe(t, h, "keep")
		keep.Close()
		pass(499 * time.Millisecond)
		want(t, w.take())
		pass(time.Millisecond)
		want(t, w.take(), "2.497s close")
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		h := bubbleHub(t, rdb)
		w.onDial(dialRefused)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := h.Subscribe(ctx, "ch"); !errors.Is(err, errRefused) {
			t.Errorf("the connection error is not in %v", err)
		}
		checkPauses(t, w.takeDials())

		w.onDial(dialOK)
		s := mustSubscribe(t, h, "ch")
		for range 2 { // A connection that lived a second makes earlier failures forgotten.
			pass(time.Second)
			w.takeDials()
			w.onDial(dialRefused)
			lost := time.Now()
			w.cut()
			pass(20 * time.Second)
			dials := w.takeDials()
			if !dials[0].Equal(lost) {
				t.Errorf("first attempt %v after the loss", dials[0].Sub(lost))
			}
			checkPauses(t, dials)
			w.onDial(dialOK)
			pass(time.Second)
			mustWake(t, s, "re-subscription")
		}
	})
}

// checkPauses checks that the pauses between attempts are random between half
// of a bound and all of it, which doubles from 20 ms to one second.
func checkPauses(t *testing.T, dials []time.Time) {
	t.Helper()
	bound := 20 * time.Millisecond
	for i := 1; i < len(dials); i++ {
		if d := dials[i].Sub(dials[i-1]); d < bound/2 || d > bound {
			t.Errorf("pause %d is %v, not between half of %v and all", i, d, bound)
		}
		bound = min(2*bound, time.Second)
	}
	if len(dials) < 20 {
		t.Errorf("%d attempts in 20 s", len(dials))
	}
}

// A command that is not answered gets as long as a PING would.
func TestUnansweredSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		h := bubbleHub(t, rdb)
		s := mustSubscribe(t, h, "a")
		w.setMute(true)
		subscribed := make(chan error)
		go func() {
			_, err := h.Subscribe(t.Context(), "b")
			subscribed <- err
		}()
		pass(5*time.Second - 1)
		if !s.Confirmed() {
			t.Error("given up before PingEvery + PongWait")
		}
		w.setMute(false)
		pass(1)
		if err := <-subscribed; err != nil {
			t.Error(err)
		}
		mustWake(t, s, "re-subscription")
		if n := len(w.takeDials()); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

// An attempt to connect that does not return is left behind, three at most.
func TestHungDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		release := make(chan struct{})
		w.onDial(func(context.Context) error { <-release; return nil })
		h := bubbleHub(t, rdb)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_, err := h.Subscribe(ctx, "ch")
		if d := time.Since(start); d != 90*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", d, err)
		}
		if !strings.Contains(err.Error(), "no connection within 10s") {
			t.Errorf("the connection error is not in %v", err)
		}
		if n := len(w.take()); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
		subscribed := make(chan *pubsub.Subscription)
		go func() {
			s, err := h.Subscribe(context.Background(), "ch")
			if err != nil {
				t.Error(err)
			}
			subscribed <- s
		}()
		pass(15 * time.Second)
		close(release)
		s := <-subscribed
		w.Publish("ch", "x")
		mustWake(t, s, "published")
		synctest.Wait()
		open := 0
		for _, e := range w.take() {
			switch {
			case strings.HasSuffix(e, "dial"):
				open++
			case strings.HasSuffix(e, "close"):
				open--
			}
		}
		if open != 1-3 { // The three dials were taken above.
			t.Errorf("%d connections left open", open+3)
		}
	})
}

func TestCloseDuringHungDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rdb := newWire(t)
		release := make(chan struct{})
		w.onDial(func(context.Context) error { <-release; return nil })
		h := bubbleHub(t, rdb)
		result := make(chan error)
		go func() {
			_, err := h.Subscribe(t.Context(), "ch")
			result <- err
		}()
		pass(time.Second)
		start := time.Now()
		_ = h.Close()
		if d := time.Since(start); d != 250*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		if err := <-result; !errors.Is(err, pubsub.ErrClosed) {
			t.Error(err)
		}
		close(release)
		synctest.Wait()
		want(t, w.take(), "0s dial", "1.25s subscribe ch", "1.25s close")
	})
}
