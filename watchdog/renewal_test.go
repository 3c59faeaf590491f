package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

const s = time.Second

func TestRenewalsComeOneIntervalAfterTheLastSend(t *testing.T) {
	for _, tc := range []struct {
		name      string
		perLease  float64
		lease     time.Duration
		ago       time.Duration // how long before Keep the grant was sent
		answering time.Duration // how long an answer takes
		want      []time.Duration
	}{
		{"default", 0, 30 * s, 0, 0, []time.Duration{10 * s, 20 * s, 30 * s}},
		{"two per lease", 2, 30 * s, 0, 0, []time.Duration{15 * s, 30 * s}},
		{"fraction", 2.5, 30 * s, 0, 0, []time.Duration{12 * s, 24 * s, 36 * s}},
		{"slow answers do not shift", 3, 30 * s, 0, 4 * s, []time.Duration{10 * s, 20 * s, 30 * s}},
		{"sent a while ago", 3, 30 * s, 4 * s, 0, []time.Duration{6 * s, 16 * s, 26 * s, 36 * s}},
		{"due at once", 3, 30 * s, 29 * s, 0, []time.Duration{0, 10 * s, 20 * s, 30 * s}},
		{"sent in the future counts as now", 3, 30 * s, -20 * s, 0, []time.Duration{10 * s, 20 * s, 30 * s}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{RenewalsPerLease: tc.perLease})
				r.server.answer = func(_ context.Context, _ int, c call) []watchdog.Outcome {
					<-time.After(tc.answering)
					return all(watchdog.Renewed, c.keys)
				}
				l := r.Keep("k", "g", tc.lease, time.Now().Add(-tc.ago))
				r.until(36 * s)
				r.wantInstants("k", tc.want...)
				wantErr(t, l, nil)
				last := tc.want[len(tc.want)-1]
				if got, want := l.ValidUntil(), r.server.began.Add(last+tc.lease); !got.Equal(want) {
					t.Errorf("ValidUntil is %v after the last send; want the lease, %v", got.Sub(r.server.began)-last, tc.lease)
				}
				r.close()
			})
		})
	}
}

func TestIntervalIsAtLeastAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{RenewalsPerLease: 1e9})
		l := r.keep("k", s)
		short := r.keep("short", time.Millisecond)
		r.until(3*time.Millisecond + time.Microsecond)
		r.wantInstants("k", 1*time.Millisecond, 2*time.Millisecond, 3*time.Millisecond)
		r.wantInstants("short")
		wantErr(t, l, nil)
		wantErr(t, short, watchdog.ErrExpired)
		r.close()
	})
}

func TestContextEndsHalfAnIntervalAfterTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.keep("k", 30*s)
		r.until(20 * s)
		r.Keep("late", "g", 6*s, time.Now().Add(-2*s)) // due at once; k is not due
		r.until(20 * s)
		r.keep("long", 300*s)
		r.close()
		for i, want := range []time.Duration{15 * s, 25 * s, 21 * s} {
			if got := r.server.recorded()[i].deadline; got != want {
				t.Errorf("call %d has its deadline at %v; want %v", i, got, want)
			}
		}
	})
}

func TestContextOfAMixedBatchEndsByItsShortestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.Keep("long", "g", 300*s, time.Now().Add(-99*s)) // due at 1 s
		r.Keep("short", "g", 3*s+3*ms, time.Now())
		r.Keep("also long", "g", 300*s, time.Now().Add(-98900*ms))
		r.until(1 * s)
		calls := r.server.recorded()
		if len(calls) != 1 || len(calls[0].keys) != 3 || calls[0].deadline != 1500*ms+500*time.Microsecond {
			t.Errorf("calls = %v; want one with all keys and its deadline half of 1.001s after it", calls)
		}
		r.close()
	})
}

func TestRenewalsWithinAnEighthOfTheIntervalGoTogether(t *testing.T) {
	for _, tc := range []struct {
		name string
		lag  time.Duration // of b's grant after a's
		want []time.Duration
	}{
		{"same instant", 0, []time.Duration{8 * s, 16 * s}},
		{"at the edge", 1 * s, []time.Duration{8 * s, 16 * s}},
		{"beyond it", 1*s + 1, []time.Duration{9*s + 1, 17*s + 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{}) // interval 8 s, window 1 s
				r.keep("a", 24*s)
				r.until(tc.lag)
				r.keep("b", 24*s)
				r.until(18 * s)
				r.wantInstants("a", 8*s, 16*s) // never put off
				r.wantInstants("b", tc.want...)
				if calls, together := len(r.server.recorded()), tc.lag <= 1*s; (calls == 2) != together {
					t.Errorf("%d calls; want both keys in one: %t", calls, together)
				}
				r.close()
			})
		})
	}
}

func TestNothingGoesEarlyUnlessSomethingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		other := r.keep("other", 23700*time.Millisecond) // the timer is set for 7.9 s, within the window of k
		r.keep("k", 24*s)
		other.Stop()
		r.until(8 * s)
		r.wantInstants("k", 8*s)
		r.close()
	})
}

func TestBatchesHoldOneGroupAndAtMostBatchSizeKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{BatchSize: 10})
		var kept []string
		for i := range 75 {
			group := fmt.Sprint("g", i%3)
			kept = append(kept, fmt.Sprint(group, "-", i))
			r.Keep(kept[i], group, 30*s, time.Now())
		}
		r.until(10 * s)
		var renewed []string
		for _, c := range r.server.recorded() {
			if len(c.keys) > 10 {
				t.Errorf("a batch of %d keys; want 10 at most", len(c.keys))
			}
			for _, key := range c.keys {
				if key[:2] != c.group {
					t.Errorf("key %s in a batch of group %s", key, c.group)
				}
			}
			renewed = append(renewed, c.keys...)
		}
		slices.Sort(kept)
		slices.Sort(renewed)
		if !slices.Equal(renewed, kept) {
			t.Errorf("renewed %v; want each kept key once", renewed)
		}
		if calls := len(r.server.recorded()); calls != 9 {
			t.Errorf("%d calls; want 3 for each group of 25", calls)
		}
		r.close()
	})
}

func TestAHangingGroupDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		hanging := hang(t)
		r.server.answer = func(ctx context.Context, n int, c call) []watchdog.Outcome {
			if c.group == "bad" {
				return hanging(ctx, n, c)
			}
			return all(watchdog.Renewed, c.keys)
		}
		for i := range 1000 {
			r.Keep(fmt.Sprint("bad", i), "bad", 30*s, time.Now())
		}
		good := r.Keep("good", "good", 30*s, time.Now().Add(-2*s))
		r.until(60 * s)
		last := -2 * s
		for _, at := range append(r.server.instants("good"), 60*s) {
			if pause := at - last; pause > 10*s { // less: it may have joined a retry of the others
				t.Errorf("the good group had no renewal for %v before %v; want 10s at most", pause, at)
			}
			last = at
		}
		wantErr(t, good, nil)
		if n := len(r.losses()); n != 1000 {
			t.Errorf("%d losses; want those of the hanging group, 1000", n)
		}
		r.close()
	})
}

func TestOneKeyKeptTwiceIsTwoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		first, second := r.keep("k", 30*s), r.keep("k", 30*s)
		r.until(10 * s)
		if calls := r.server.recorded(); len(calls) != 1 || !slices.Equal(calls[0].keys, []string{"k", "k"}) {
			t.Errorf("calls = %v; want one with the key twice", calls)
		}
		first.Stop()
		r.server.answerWith(script(reply{watchdog.Gone, 0}))
		r.until(20 * s)
		wantErr(t, first, nil)
		wantErr(t, second, watchdog.ErrGone)
		r.wantLosses(told{"k", watchdog.ErrGone, 20 * s})
	})
}

func TestIdleMeansNoTimerAndNoGoroutine(t *testing.T) {
	t.Run("before the first lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { newRig(t, watchdog.Options[string]{}).wantIdle() })
	})
	for name, end := range map[string]func(*rig, []*watchdog.Lease[string]){
		"all stopped": func(_ *rig, kept []*watchdog.Lease[string]) {
			for _, l := range kept {
				l.Stop()
			}
		},
		"closed": func(r *rig, _ []*watchdog.Lease[string]) { r.close() },
		"all gone": func(r *rig, _ []*watchdog.Lease[string]) {
			r.server.answerWith(script(reply{watchdog.Gone, 0}))
			r.until(30 * s)
		},
		"all expired": func(r *rig, _ []*watchdog.Lease[string]) {
			r.server.answerWith(script(reply{watchdog.Unknown, 0}))
			r.until(60 * s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{})
				var kept []*watchdog.Lease[string]
				for i := range 3000 { // more than a stride
					kept = append(kept, r.Keep(strconv.Itoa(i), "g", 30*s, time.Now().Add(-time.Duration(i)*time.Millisecond)))
				}
				r.until(15 * s)
				end(r, kept)
				synctest.Wait()
				r.wantIdle()
			})
		})
	}
}

func TestWaitWaitsForLeasesAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		release := make(chan struct{})
		r.server.answer = func(context.Context, int, call) []watchdog.Outcome { <-release; return nil }
		l := r.keep("k", 30*s)
		waited := make(chan error, 1)
		go func() { waited <- r.Wait(t.Context()) }()
		steps := []struct {
			what string
			do   func()
		}{
			{"a kept lease", func() { r.until(1 * s) }},
			{"a running call", func() { r.until(10 * s); l.Stop() }},
		}
		for _, step := range steps {
			step.do()
			synctest.Wait()
			select {
			case err := <-waited:
				t.Fatalf("Wait returned %v in spite of %s", err, step.what)
			default:
			}
		}
		errEnough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), s, errEnough)
		defer cancel()
		if err := r.Wait(ctx); !errors.Is(err, errEnough) {
			t.Errorf("Wait with an ended ctx = %v; want its cause", err)
		}
		close(release)
		if err := <-waited; err != nil {
			t.Errorf("Wait = %v after all has ended; want nil", err)
		}
		r.wantIdle()
	})
}
