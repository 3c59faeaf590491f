package watchdog_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

const ms = time.Millisecond

// far is later than a test looks.
const far = 1000 * s

var unknowns = []struct {
	name     string
	perLease float64
	answer   func(context.Context, int, call) []watchdog.Outcome
	want     []time.Duration // of the calls, with a lease whose interval is 16 s
	lost     time.Duration   // 0: not lost in 100 s
}{
	{ // pauses of 1, 2, 4, 4 ... s, then halfway to the end, until less than 0.5 s is left
		"at once, three a lease", 3, script(reply{watchdog.Unknown, 0}),
		[]time.Duration{16 * s, 17 * s, 19 * s, 23 * s, 27 * s, 31 * s, 35 * s, 39 * s, 43 * s, 45500 * ms, 46750 * ms, 47375 * ms, 47687500 * time.Microsecond},
		48 * s,
	},
	{
		"at once, two a lease", 2, script(reply{watchdog.Unknown, 0}),
		[]time.Duration{16 * s, 17 * s, 19 * s, 23 * s, 27 * s, 29500 * ms, 30750 * ms, 31375 * ms, 31687500 * time.Microsecond},
		32 * s,
	},
	{ // each call is left behind after 8 s
		"never, three a lease", 3, script(reply{watchdog.Renewed, far}),
		[]time.Duration{16 * s, 25 * s, 35 * s, 45500 * ms},
		48 * s,
	},
	{"never, two a lease", 2, script(reply{watchdog.Renewed, far}), []time.Duration{16 * s, 25 * s}, 32 * s},
	{
		"late by 3 s", 2, script(reply{watchdog.Unknown, 3 * s}),
		[]time.Duration{16 * s, 20 * s, 25 * s, 30 * s},
		32 * s,
	},
	{ // after a Renewed the pauses begin anew
		"now and then", 3, script(reply{}, reply{}, reply{watchdog.Renewed, 0}, reply{}, reply{}, reply{watchdog.Renewed, 0}),
		[]time.Duration{16 * s, 17 * s, 19 * s, 35 * s, 36 * s, 38 * s, 54 * s, 70 * s, 86 * s},
		0,
	},
	{"fewer outcomes than keys", 2, func(context.Context, int, call) []watchdog.Outcome { return []watchdog.Outcome{} }, nil, 32 * s},
	{"no outcome at all", 2, script(reply{watchdog.Outcome(77), 0}), nil, 32 * s},
}

func TestUnknownIsRetriedUntilTheEnd(t *testing.T) {
	for _, tc := range unknowns {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{RenewalsPerLease: tc.perLease})
				r.server.answer = tc.answer
				l := r.keep("k", time.Duration(tc.perLease)*16*s)
				if tc.lost > 0 {
					r.until(tc.lost - 1)
					wantErr(t, l, nil)
					lost := l.Lost()
					r.until(tc.lost)
					if !isClosed(lost) { // nobody has asked for it since
						t.Errorf("Lost is open at %v", tc.lost)
					}
					r.wantLosses(told{"k", watchdog.ErrExpired, tc.lost})
					wantErr(t, l, watchdog.ErrExpired)
					r.until(100 * s)
					r.wantLosses(told{"k", watchdog.ErrExpired, tc.lost})
					if got := l.ValidUntil().Sub(r.server.began); got != tc.lost {
						t.Errorf("ValidUntil is %v; want the instant of the loss, %v", got, tc.lost)
					}
				} else {
					r.until(100 * s)
					wantErr(t, l, nil)
					r.close()
				}
				if tc.want != nil {
					r.wantInstants("k", tc.want...)
				}
				for _, at := range r.server.instants("k") {
					if tc.lost > 0 && at >= tc.lost {
						t.Errorf("a renewal at %v, after the loss", at)
					}
				}
				if n := len(r.server.instants("k")); n < 2 {
					t.Errorf("%d calls; want at least one retry", n)
				}
				r.until(far * 2) // for the calls left behind
			})
		})
	}
}

func TestRetriesKeepTheirBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.server.answer = script(reply{watchdog.Unknown, 0})
		for i := range 50 {
			r.keep(strconv.Itoa(i), 48*s)
		}
		r.until(60 * s)
		for _, c := range r.server.recorded() {
			if len(c.keys) != 50 {
				t.Errorf("a call of %d keys at %v; want all 50", len(c.keys), c.at)
			}
		}
	})
}

func TestRetriesJoinByAnEighthOfTheirPause(t *testing.T) {
	for _, tc := range []struct {
		due  time.Duration // of the lease that a may join
		want time.Duration // of a's first retry
	}{
		{16*s + 875*ms, 16*s + 875*ms}, // its pause is 1 s
		{16*s + 875*ms - 1, 17 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, watchdog.Options[string]{})
			r.server.answer = script(reply{watchdog.Unknown, 0}, reply{watchdog.Renewed, 0})
			r.keep("a", 48*s)
			r.until(16 * s)
			interval := 2 * s
			r.Keep("b", "g", 3*interval, r.server.began.Add(tc.due-interval))
			r.until(18 * s)
			r.wantInstants("a", 16*s, tc.want)
			r.close()
		})
	}
}

func TestGoneIsLossAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.server.answer = func(_ context.Context, _ int, _ call) []watchdog.Outcome {
			<-time.After(1 * s)
			return []watchdog.Outcome{watchdog.Gone, watchdog.Renewed}
		}
		a, b := r.keep("a", 30*s), r.keep("b", 30*s)
		lost := a.Lost()
		r.until(11*s - 1)
		wantErr(t, a, nil)
		r.until(11 * s)
		if !isClosed(lost) {
			t.Error("the channel that Lost gave before the loss is open")
		}
		wantErr(t, a, watchdog.ErrGone)
		wantErr(t, b, nil)
		if !a.ValidUntil().Equal(r.server.began.Add(11 * s)) {
			t.Error("ValidUntil is later than the loss")
		}
		r.wantLosses(told{"a", watchdog.ErrGone, 11 * s})
		b.Stop()
		r.wantIdle()
	})
}

func TestLateAnswersOfACallLeftBehind(t *testing.T) {
	// The interval is 16 s, the lease 48 s: the first call goes out at 16 s and is left behind at 24 s.
	for _, tc := range []struct {
		name    string
		replies []reply
		at      time.Duration // when to look
		err     error
		until   time.Duration
		want    []time.Duration
	}{
		{
			"renewed counts from its own send",
			[]reply{{watchdog.Renewed, 14 * s}, {watchdog.Unknown, 100 * s}},
			34 * s, nil, 64 * s,
			[]time.Duration{16 * s, 25 * s},
		},
		{ // at 24.5 s no later call is on its way: the next is due 16 s after the first
			"renewed in the pause sets the next renewal",
			[]reply{{watchdog.Renewed, 8500 * ms}, {watchdog.Renewed, 0}},
			50 * s, nil, 48*s + 48*s,
			[]time.Duration{16 * s, 32 * s, 48 * s},
		},
		{
			"an older renewed does not shorten",
			[]reply{{watchdog.Renewed, 12 * s}, {watchdog.Renewed, 0}},
			30 * s, nil, 25*s + 48*s,
			[]time.Duration{16 * s, 25 * s},
		},
		{"gone is loss", []reply{{watchdog.Gone, 12 * s}, {watchdog.Renewed, 0}}, 28 * s, watchdog.ErrGone, 28 * s, []time.Duration{16 * s, 25 * s}},
		{"unknown changes nothing", []reply{{watchdog.Unknown, 12 * s}, {watchdog.Renewed, 0}}, 42 * s, nil, 41*s + 48*s, []time.Duration{16 * s, 25 * s, 41 * s}},
		{
			"renewed after the loss revives nothing",
			[]reply{{watchdog.Renewed, 32 * s}, {watchdog.Unknown, 100 * s}},
			60 * s, watchdog.ErrExpired, 48 * s,
			[]time.Duration{16 * s, 25 * s, 35 * s, 45500 * ms},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{})
				r.server.answer = script(tc.replies...)
				l := r.keep("k", 48*s)
				r.until(tc.at)
				wantErr(t, l, tc.err)
				if got := l.ValidUntil().Sub(r.server.began); got != tc.until {
					t.Errorf("ValidUntil is %v; want %v", got, tc.until)
				}
				r.wantInstants("k", tc.want...)
				r.close()
				r.until(300 * s)
			})
		})
	}
}

func TestTheClockDecidesWhenTimersAreLate(t *testing.T) {
	asks := map[string]func(*watchdog.Lease[string]){
		"Err":    func(l *watchdog.Lease[string]) { _ = l.Err() },
		"Lost":   func(l *watchdog.Lease[string]) { l.Lost() },
		"Stop":   func(l *watchdog.Lease[string]) { l.Stop() },
		"Extend": func(l *watchdog.Lease[string]) { l.Extend(time.Now(), 100*s) },
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{})
				l := r.keep("k", 30*s)
				lost := l.Lost()
				resume := r.StallTimer()
				r.until(30*s - 1)
				wantErr(t, l, nil)
				r.until(30 * s)
				if isClosed(lost) {
					t.Fatal("the timer was not late: this test shows nothing")
				}
				ask(l)
				if !isClosed(lost) {
					t.Error("the channel is open after the call")
				}
				wantErr(t, l, watchdog.ErrExpired)
				synctest.Wait()
				r.wantLosses(told{"k", watchdog.ErrExpired, 30 * s})
				resume()
				r.until(100 * s)
				wantErr(t, l, watchdog.ErrExpired)
				r.wantLosses(told{"k", watchdog.ErrExpired, 30 * s})
				r.wantInstants("k")
			})
		})
	}
}

func TestRenewedThatArrivesAfterTheEndIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.server.answer = script(reply{watchdog.Renewed, 20 * s}) // sent at 10 s: it would confirm until 40 s
		l := r.keep("k", 30*s)
		r.until(10 * s)
		resume := r.StallTimer() // nobody looks at the lease between its end and the answer
		r.until(30 * s)
		wantErr(t, l, watchdog.ErrExpired)
		resume()
		r.until(60 * s)
		r.wantLosses(told{"k", watchdog.ErrExpired, 30 * s})
	})
}

func TestLeasesThatRanOutBeforeTheirBatchStartedAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		l := r.keep("k", 30*s)
		stall := r.StallTimer()
		r.until(10 * s)
		stall() // arms the timer for now; PutTogether is first
		run := r.PutTogether()
		r.StallTimer()
		r.until(30 * s)
		run()
		r.wantInstants("k")
		wantErr(t, l, watchdog.ErrExpired)
	})
}

func TestKeepOfALeaseThatHasRunOut(t *testing.T) {
	for _, tc := range []struct {
		name       string
		lease, ago time.Duration
	}{
		{"exactly over", 30 * s, 30 * s},
		{"long over", 30 * s, 1e6 * s},
		{"no lease", 0, 0},
		{"negative lease", -1 * s, 0},
		{"no lease, sent in the future", 0, -30 * s},
		{"least of all", -1 << 63, 1<<63 - 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{})
				l := r.Keep("k", "g", tc.lease, time.Now().Add(-tc.ago))
				wantErr(t, l, watchdog.ErrExpired)
				if l.ValidUntil().After(time.Now()) {
					t.Error("ValidUntil lies in the future")
				}
				synctest.Wait()
				r.wantLosses(told{"k", watchdog.ErrExpired, 0})
				r.wantIdle()
			})
		})
	}
}

func TestKeepOfAnEndlessLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.until(1 * s)
		l := r.keep("k", 1<<63-1)
		r.until(1e6 * s)
		wantErr(t, l, nil)
		l.Extend(time.Now(), 1<<63-1)
		wantErr(t, l, nil)
		l.Stop()
		r.wantIdle()
	})
}
