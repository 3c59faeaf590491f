package watchdog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

func TestStopIgnoresTheAnswerInFlight(t *testing.T) {
	for _, outcome := range []watchdog.Outcome{watchdog.Unknown, watchdog.Renewed, watchdog.Gone} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, watchdog.Options[string]{})
			r.server.answer = script(reply{outcome, 2 * s})
			l := r.keep("k", 30*s)
			lost := l.Lost()
			r.until(11 * s)
			l.Stop()
			l.Stop()
			r.until(100 * s)
			wantErr(t, l, nil)
			if isClosed(lost) {
				t.Error("Lost was closed after Stop")
			}
			if got := l.ValidUntil().Sub(r.server.began); got != 30*s {
				t.Errorf("ValidUntil is %v; want what it was at Stop, 30s", got)
			}
			r.wantInstants("k", 10*s)
			r.wantLosses()
			r.wantIdle()
		})
	}
}

func TestStopBetweenPlanAndStartKeepsTheLeaseOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		a, b := r.keep("a", 30*s), r.keep("b", 30*s)
		resume := r.StallTimer()
		r.until(10 * s)
		resume()
		run := r.PutTogether()
		a.Stop()
		run()
		r.wantInstants("a")
		r.wantInstants("b", 10*s)
		b.Stop()
		// A batch that has lost all of its leases is not sent at all.
		c := r.Keep("c", "g", 30*s, time.Now().Add(-20*s))
		run = r.PutTogether()
		c.Stop()
		run()
		if n := len(r.server.recorded()); n != 1 {
			t.Errorf("%d calls; want 1", n)
		}
		synctest.Wait()
		r.wantIdle()
	})
}

func TestStopOfALostLeaseChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.server.answer = script(reply{watchdog.Gone, 0})
		l := r.keep("k", 30*s)
		r.until(10 * s)
		l.Stop()
		wantErr(t, l, watchdog.ErrGone)
		r.wantLosses(told{"k", watchdog.ErrGone, 10 * s})
	})
}

func TestExtend(t *testing.T) {
	for _, tc := range []struct {
		name     string
		sent, d  time.Duration // relative to Extend, which is called at 5 s
		validity time.Duration // expected after it
	}{
		{"longer", 0, 60 * s, 65 * s},
		{"longer, sent before", -3 * s, 60 * s, 62 * s},
		{"never shortens", 0, 10 * s, 30 * s},
		{"sent in the future counts as now", 50 * s, 60 * s, 65 * s},
		{"no validity", 100 * s, 0, 30 * s},
		{"negative", 100 * s, -1 << 63, 30 * s},
		{"negative, sent long ago", -1 << 62, -1 << 63, 30 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, watchdog.Options[string]{})
				r.server.answer = script(reply{watchdog.Unknown, 0})
				l := r.keep("k", 30*s)
				r.until(5 * s)
				l.Extend(time.Now().Add(tc.sent), tc.d)
				if got := l.ValidUntil().Sub(r.server.began); got != tc.validity {
					t.Errorf("ValidUntil is %v; want %v", got, tc.validity)
				}
				r.until(tc.validity - 1)
				wantErr(t, l, nil)
				r.until(tc.validity)
				wantErr(t, l, watchdog.ErrExpired)
				r.wantLosses(told{"k", watchdog.ErrExpired, tc.validity})
			})
		})
	}
}

func TestExtendedLeaseIsRenewedAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		l := r.keep("k", 30*s)
		l.Extend(time.Now(), 45*s)
		for _, step := range []struct{ at, until time.Duration }{
			{10 * s, 45 * s},
			{20 * s, 50 * s},
			{30 * s, 60 * s},
		} {
			r.until(step.at)
			if got := l.ValidUntil().Sub(r.server.began); got != step.until {
				t.Errorf("ValidUntil at %v is %v; want the later of sent+lease and the extension, %v", step.at, got, step.until)
			}
		}
		r.wantInstants("k", 10*s, 20*s, 30*s)
		r.close()
	})
}

func TestExtendWhileACallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{RenewalsPerLease: 2}) // interval 16 s
		r.server.answer = script(reply{watchdog.Unknown, 3 * s}, reply{watchdog.Unknown, 3 * s}, reply{watchdog.Unknown, 3 * s}, reply{watchdog.Renewed, 1000 * s})
		l := r.keep("k", 32*s)
		r.until(31 * s) // the fourth call is from 30 s, the end would be at 32 s
		l.Extend(time.Now(), 100*s)
		r.until(80 * s)
		wantErr(t, l, nil)
		r.wantInstants("k", 16*s, 20*s, 25*s, 30*s, 42*s, 54*s, 66*s, 78*s) // left behind after 8 s, then a pause of 4 s
		r.close()
		r.until(2000 * s)
	})
}

func TestExtendRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		r.server.answer = script(reply{watchdog.Gone, 0})
		gone, stopped := r.keep("gone", 30*s), r.keep("stopped", 30*s)
		stopped.Stop()
		r.until(10 * s)
		gone.Extend(time.Now(), 100*s)
		stopped.Extend(time.Now(), 100*s)
		wantErr(t, gone, watchdog.ErrGone)
		wantErr(t, stopped, nil)
		for name, l := range map[string]*watchdog.Lease[string]{"gone": gone, "stopped": stopped} {
			if l.ValidUntil().After(r.server.began.Add(30 * s)) {
				t.Errorf("Extend raised ValidUntil of the %s lease", name)
			}
		}
		r.wantIdle()
	})
}

// OnLost and renew use every method and a lock that the callers of these methods hold too.
func TestCallbacksMayUseTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			w       *watchdog.Watchdog[string]
			callers sync.Mutex
			ended   int
		)
		use := func() {
			callers.Lock()
			defer callers.Unlock()
			l := w.Keep("inner", "g", 30*s, time.Now())
			l.Extend(time.Now(), s)
			_, _, _ = l.Err(), l.Lost(), l.ValidUntil()
			l.Stop()
		}
		var err error
		w, err = watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
			use()
			return all(watchdog.Gone, keys)
		}, watchdog.Options[string]{OnLost: func(key string, err error) {
			use()
			_ = w.Close()
			ended++
			if key != "k" || !errors.Is(err, watchdog.ErrGone) {
				t.Errorf("OnLost(%q, %v)", key, err)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.Keep("k", "g", 30*s, time.Now())
		if err := w.Wait(t.Context()); err != nil || ended != 1 {
			t.Errorf("Wait = %v after %d losses", err, ended)
		}
	})
}

func TestALossFoundUnderTheCallersLockDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		w, err := watchdog.New(func(context.Context, string, []string) []watchdog.Outcome { return nil },
			watchdog.Options[string]{OnLost: func(string, error) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, "told")
			}})
		if err != nil {
			t.Fatal(err)
		}
		l := w.Keep("k", "g", 30*s, time.Now())
		w.StallTimer()
		<-time.After(30 * s)
		mu.Lock()
		wantErr(t, l, watchdog.ErrExpired)
		order = append(order, "seen")
		mu.Unlock()
		_ = w.Close()
		synctest.Wait()
		if len(order) != 2 || order[0] != "seen" {
			t.Errorf("order = %v", order)
		}
	})
}

func TestOnLostComesAfterErrAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := map[string]*watchdog.Lease[string]{}
		told := 0
		w, err := watchdog.New(func(_ context.Context, _ string, keys []string) []watchdog.Outcome {
			return all(watchdog.Gone, keys)
		}, watchdog.Options[string]{OnLost: func(key string, err error) {
			told++
			wantErr(t, kept[key], err)
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b"} {
			kept[key] = w.Keep(key, "g", 30*s, time.Now())
		}
		if err := w.Wait(t.Context()); err != nil || told != 2 {
			t.Errorf("Wait = %v after %d losses; want 2", err, told)
		}
	})
}
