package watchdog_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

func TestNewNamesTheFieldAndTheRemedy(t *testing.T) {
	renew := func(context.Context, string, []string) []watchdog.Outcome { return nil }
	type renewFunc = func(context.Context, string, []string) []watchdog.Outcome
	for _, tc := range []struct {
		name  string
		renew renewFunc
		o     watchdog.Options[string]
		want  []string // in the error; nil: none
	}{
		{"zero value", renew, watchdog.Options[string]{}, nil},
		{"least values", renew, watchdog.Options[string]{RenewalsPerLease: 2, BatchSize: 1}, nil},
		{"no renew", nil, watchdog.Options[string]{}, []string{"renew is nil", "give New"}},
		{"too few renewals", renew, watchdog.Options[string]{RenewalsPerLease: 1.99}, []string{"RenewalsPerLease is 1.99", "at least 2"}},
		{"negative renewals", renew, watchdog.Options[string]{RenewalsPerLease: -3}, []string{"RenewalsPerLease is -3", "at least 2"}},
		{"no number", renew, watchdog.Options[string]{RenewalsPerLease: math.NaN()}, []string{"RenewalsPerLease is NaN", "finite"}},
		{"infinite", renew, watchdog.Options[string]{RenewalsPerLease: math.Inf(1)}, []string{"RenewalsPerLease is +Inf", "finite"}},
		{"negative batch", renew, watchdog.Options[string]{BatchSize: -1}, []string{"BatchSize is -1", "at least 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, err := watchdog.New(tc.renew, tc.o)
			if (err != nil) != (tc.want != nil) || (w == nil) != (err != nil) {
				t.Fatalf("New = %v, %v; want an error: %t", w, err, tc.want != nil)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestDefaultsAreThreeRenewalsAndHundredKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, watchdog.Options[string]{})
		for range 101 {
			r.keep("k", 30*time.Second)
		}
		r.until(10 * time.Second)
		calls := r.server.recorded()
		if len(calls) != 2 || len(calls[0].keys)+len(calls[1].keys) != 101 || max(len(calls[0].keys), len(calls[1].keys)) != 100 {
			t.Errorf("%d calls after a third of the lease; want one of 100 keys and one of 1", len(calls))
		}
		r.close()
	})
}

func TestOutcomeZeroValueIsUnknown(t *testing.T) {
	var o watchdog.Outcome
	if o != watchdog.Unknown {
		t.Errorf("zero Outcome = %d; want Unknown (%d)", o, watchdog.Unknown)
	}
}
