package main

import (
	"strings"
	"testing"
)

// figures are what a verdict looks at.
type figures struct {
	rate, commands, p99 float64
	turns               []int // by goroutine
	retakes             float64
}

func (f figures) of(name string) summary {
	sum := 0
	for _, n := range f.turns {
		sum += n
	}
	return summary{
		Name: name, Turns: sum, TurnsPerSecond: f.rate, Commands: commands{PerTurn: f.commands},
		Waits: waits{P99: f.p99}, Fairness: fairnessOf(f.turns), Retakes: f.retakes,
	}
}

// Each comparison in both directions, and when there is none.
func TestVerdictComparesBothWays(t *testing.T) {
	even := []int{9, 9, 9, 9}
	uneven := []int{100, 100, 100, 1}
	low := figures{rate: 100, commands: 2, p99: 40, turns: even}
	high := figures{rate: 200, commands: 5, p99: 1900, turns: uneven}
	tests := []struct {
		name          string
		polling, ours figures
		want          string
	}{
		{
			"latchkey has more of all", low, high,
			"Latchkey made 2x as many turns as polling, with more Redis commands per turn (5.0 against 2.0); " +
				"its p99 wait was longer (1.9 s against 40 ms); slowest to fastest goroutine 0.01 against 1.00. " +
				"With latchkey 1 of 4 goroutines had less than a tenth of their fair share of turns.",
		},
		{
			"polling has more of all", high, low,
			"Latchkey made fewer turns than polling, 0.5x as many, with fewer Redis commands per turn (2.0 against 5.0); " +
				"its p99 wait was shorter (40 ms against 1.9 s); slowest to fastest goroutine 1.00 against 0.01. " +
				"With polling 1 of 4 goroutines had less than a tenth of their fair share of turns.",
		},
		{
			"no difference", low,
			figures{rate: 102, commands: 2.04, p99: 39, turns: even},
			"Latchkey made about as many turns as polling (1.02x), with about as many Redis commands per turn " +
				"(2.0 against 2.0); its p99 wait was about the same (39 ms against 40 ms); " +
				"slowest to fastest goroutine 1.00 against 1.00.",
		},
		{
			"both starve somebody",
			figures{rate: 9, commands: 1, p99: 1, turns: []int{100, 0, 4}},
			figures{rate: 9, commands: 1, p99: 1, turns: []int{100, 0, 0}},
			"Latchkey made about as many turns as polling (1.00x), with about as many Redis commands per turn " +
				"(1.0 against 1.0); its p99 wait was about the same (1 ms against 1 ms); " +
				"slowest to fastest goroutine 0.00 against 0.00. " +
				// 4 of 104 is more than a tenth of a third.
				"With polling 1 of 3 goroutines had less than a tenth of their fair share of turns. " +
				"With latchkey 2 of 3 goroutines had less than a tenth of their fair share of turns.",
		},
		{
			"latchkey had no turn", low,
			figures{turns: []int{0, 0, 0, 0}},
			"No comparison: Latchkey made 0 turns and polling 36 turns; give more time with -duration.",
		},
		{
			"polling had no turn",
			figures{turns: []int{0, 0}},
			figures{rate: 1, turns: []int{1, 0}},
			"No comparison: Latchkey made 1 turn and polling 0 turns; give more time with -duration.",
		},
	}
	for _, test := range tests {
		got := verdict([]summary{test.polling.of(baseline), test.ours.of(subject)})
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestVerdictSaysFailuresFirst(t *testing.T) {
	polling := figures{rate: 1, commands: 1, p99: 1, turns: []int{5, 5}}.of(baseline)
	broken := figures{rate: 1, commands: 1, p99: 1, turns: []int{5, 5}}.of(subject)
	broken.Violations = violations{Overlaps: 1, LostUpdates: 2}
	got := verdict([]summary{polling, broken})
	want := "FAILED: latchkey let two in at once: 1 overlapping critical section and 2 lost updates. Latchkey made"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %s\nwant %s...", got, want)
	}
	if !ok([]summary{polling}) || ok([]summary{polling, broken}) {
		t.Error("ok does not follow the violations")
	}
}

func TestVerdictNeedsTwo(t *testing.T) {
	got := verdict([]summary{figures{rate: 1, turns: []int{1}}.of(baseline)})
	if got != "There are no two strategies to compare." {
		t.Error(got)
	}
}

// The reason is given only when polling is ahead and its turns were retakes.
func TestWhyPollingLeads(t *testing.T) {
	four, two := []int{9, 9, 9, 9}, []int{9, 9}
	tests := []struct {
		name          string
		polling, ours figures
		want          string
	}{
		{
			"ahead by retaking",
			figures{rate: 200, retakes: 0.99, turns: four},
			figures{rate: 100, retakes: 0.04, turns: four},
			"Why polling leads: its releaser retakes the lock while others sleep, 99% of turns (latchkey 4%).",
		},
		{
			"ahead, and latchkey retakes too",
			figures{rate: 200, retakes: 1, turns: four},
			figures{rate: 100, retakes: 1, turns: four},
			"Why polling leads: its releaser retakes the lock while others sleep, 100% of turns (latchkey 100%).",
		},
		{"ahead otherwise", figures{rate: 200, retakes: 0.5, turns: four}, figures{rate: 100, turns: four}, ""},
		{"by chance, of two", figures{rate: 200, retakes: 0.7, turns: two}, figures{rate: 100, turns: two}, ""},
		{"retaking, but behind", figures{rate: 100, retakes: 1, turns: four}, figures{rate: 200, turns: four}, ""},
		{"retaking, about equal", figures{rate: 104, retakes: 1, turns: four}, figures{rate: 100, turns: four}, ""},
		{"nobody else", figures{rate: 200, retakes: 1, turns: []int{9}}, figures{rate: 100, turns: []int{9}}, ""},
	}
	for _, test := range tests {
		got := whyPollingLeads([]summary{test.polling.of(baseline), test.ours.of(subject)})
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if len(got) > width {
			t.Errorf("%s: wider than %d columns: %s", test.name, width, got)
		}
	}
	if got := whyPollingLeads([]summary{figures{rate: 1, retakes: 1, turns: four}.of(baseline)}); got != "" {
		t.Errorf("alone: %q", got)
	}
}

// A pause that nobody could tell from none would make both shapes the same one.
func TestShapesDifferInThePauseOnly(t *testing.T) {
	shapes := standardShapes()
	if len(shapes) != 2 || shapes[0].pause <= 0 || shapes[1].pause != 0 {
		t.Fatalf("%+v", shapes)
	}
	a, b := shapes[0], shapes[1]
	b.name, b.about, b.pause = a.name, a.about, a.pause
	if a != b {
		t.Errorf("%+v and %+v differ in more", shapes[0], shapes[1])
	}
}
