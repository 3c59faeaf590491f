package main

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// section is one stay in the critical section, by the process' monotonic clock.
type section struct {
	enter, leave time.Duration // since the auditor was made
}

// auditor watches the critical sections of one round. It trusts no lock: it
// finds a violation in two independent ways, overlapping intervals and lost
// updates.
type auditor struct {
	since time.Time

	// updates is raised by reading it on the way in and writing it on the way
	// out: without mutual exclusion updates are lost. Loads and stores are atomic
	// one by one, so that a broken lock shows as a count and not as a data race.
	updates atomic.Int64
}

func newAuditor() *auditor { return &auditor{since: time.Now()} }

// inside is the critical section: it takes the time of work, or less when ctx
// ends. The interval lies within the hold: it begins after lock has returned and
// ends before unlock is called, so two holds that exclude each other never
// overlap.
func (a *auditor) inside(ctx context.Context, work time.Duration) section {
	s := section{enter: time.Since(a.since)}
	seen := a.updates.Load()
	_ = pause(ctx, work) // cut short is fine: the section ends here either way
	a.updates.Store(seen + 1)
	s.leave = time.Since(a.since)
	return s
}

// violations are what an auditor found.
type violations struct {
	// Overlaps is how many critical sections began before an earlier one ended.
	Overlaps int `json:"overlaps"`
	// LostUpdates is how many increments of the unsynchronised counter are missing.
	LostUpdates int `json:"lost_updates"`
}

func (v violations) none() bool { return v == violations{} }

func (v violations) plus(w violations) violations {
	return violations{Overlaps: v.Overlaps + w.Overlaps, LostUpdates: v.LostUpdates + w.LostUpdates}
}

// verdict judges all sections of the round, when nobody is inside any more.
func (a *auditor) verdict(sections []section) violations {
	return violations{
		Overlaps:    overlaps(sections),
		LostUpdates: len(sections) - int(a.updates.Load()),
	}
}

// overlaps counts the sections that began before an earlier one had ended.
func overlaps(sections []section) int {
	sorted := slices.SortedFunc(slices.Values(sections), func(a, b section) int {
		return cmp.Compare(a.enter, b.enter)
	})
	found, latest := 0, time.Duration(-1)
	for _, s := range sorted {
		if s.enter < latest {
			found++
		}
		latest = max(latest, s.leave)
	}
	return found
}
