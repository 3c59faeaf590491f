package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	tests := []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.5, 7},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 1, 100},
	}
	for _, test := range tests {
		if got := percentile(test.values, test.p); got != test.want {
			t.Errorf("percentile %v of %d values = %d, want %d", test.p, len(test.values), got, test.want)
		}
	}
}

func TestFairness(t *testing.T) {
	tests := []struct {
		turns       []int
		slow, index float64
	}{
		{[]int{5, 5, 5, 5}, 1, 1},
		{[]int{12, 0, 0, 0}, 0, 0.25},
		{[]int{1, 3}, 1.0 / 3, 0.8},
		{[]int{4}, 1, 1},
		{[]int{0, 0}, 0, 0},
	}
	for _, test := range tests {
		got := fairnessOf(test.turns)
		if math.Abs(got.SlowestToFastest-test.slow) > 1e-9 || math.Abs(got.Jain-test.index) > 1e-9 {
			t.Errorf("%v: %+v", test.turns, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	tests := []struct {
		name     string
		sections []section
		want     int
	}{
		{"none", nil, 0},
		{"one after the other", []section{{0, 10}, {10, 20}, {25, 30}}, 0},
		{"two at once", []section{{0, 10}, {9, 20}}, 1},
		{"not in order", []section{{9, 20}, {30, 40}, {0, 10}}, 1},
		{"two inside a long one", []section{{0, 100}, {10, 20}, {30, 40}}, 2},
		{"the same", []section{{5, 6}, {5, 6}}, 1},
	}
	for _, test := range tests {
		if got := overlaps(test.sections); got != test.want {
			t.Errorf("%s: %d overlaps, want %d", test.name, got, test.want)
		}
	}
}

// Two goroutines that are inside at once lose an update, whatever their clocks say.
func TestAuditorFindsLostUpdates(t *testing.T) {
	a := newAuditor()
	first := a.inside(t.Context(), 0)
	a.updates.Store(0) // as somebody who had read it before would
	second := a.inside(t.Context(), 0)
	if got := a.verdict([]section{first, second}); got != (violations{LostUpdates: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestTallyCountsCutOffWaits(t *testing.T) {
	began := time.Now()
	workers := []*worker{
		{waits: []time.Duration{time.Millisecond, time.Millisecond}, sections: []section{{1, 2}, {3, 4}}},
		{askedAt: []time.Time{began}, lost: 1},
	}
	a := newAuditor()
	a.updates.Store(2)
	sum := newTally(2)
	sum.add(roundResult{
		workers: workers, auditor: a, began: began, ended: began.Add(2 * time.Second),
		before: map[string]int64{"set": 5, "ping": 1}, after: map[string]int64{"set": 9, "ping": 1, "evalsha": 2},
	})
	s := sum.summarise("x")
	if s.Turns != 2 || s.TurnsPerSecond != 1 || s.Retakes != 0.5 || s.LostLocks != 1 || !s.Violations.none() {
		t.Errorf("%+v", s)
	}
	if s.Waits != (waits{P50: 1, P99: 2000, Max: 2000, Unfinished: 1}) {
		t.Errorf("waits: %+v", s.Waits)
	}
	if s.Commands.Total != 6 || s.Commands.PerTurn != 3 || s.Commands.ByVerb["set"] != 4 {
		t.Errorf("commands: %+v", s.Commands)
	}
	if !slices.Equal(s.Fairness.Turns, []int{2, 0}) {
		t.Errorf("turns: %v", s.Fairness.Turns)
	}
}

func TestRetakes(t *testing.T) {
	tests := []struct {
		name     string
		byWorker [][]section
		want     int
	}{
		{"nobody", nil, 0},
		{"one alone", [][]section{{{0, 1}, {2, 3}, {4, 5}}}, 2},
		{"in turn", [][]section{{{0, 1}, {4, 5}}, {{2, 3}, {6, 7}}}, 0},
		{"twice each", [][]section{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}, 2},
		{"one without a turn", [][]section{{}, {{2, 3}}, {{0, 1}}}, 0},
	}
	for _, test := range tests {
		if got := retakes(test.byWorker); got != test.want {
			t.Errorf("%s: %d retakes, want %d", test.name, got, test.want)
		}
	}
}
