package main

import (
	"fmt"
	"strings"
)

// verdict says in words what the figures of one shape say, failures first.
func verdict(results []summary) string {
	var parts []string
	for _, s := range results {
		parts = append(parts, failuresOf(s)...)
	}
	text := compare(results)
	if len(parts) > 0 {
		text = strings.TrimSpace("FAILED: " + strings.Join(parts, "; ") + ". " + text)
	}
	return text
}

// failuresOf says what fails the run; nothing for a strategy that did its work.
func failuresOf(s summary) []string {
	var parts []string
	if v := s.Violations; !v.none() {
		parts = append(parts, fmt.Sprintf("%s let two in at once: %s and %s", s.Name,
			count(v.Overlaps, "overlapping critical section"), count(v.LostUpdates, "lost update")))
	}
	if s.LostLocks > 0 {
		parts = append(parts, fmt.Sprintf("%s lost its lock while holding it: %s", s.Name, count(s.LostLocks, "time")))
	}
	if s.Error != "" {
		parts = append(parts, fmt.Sprintf("%s ended with an error: %s", s.Name, s.Error))
	}
	return parts
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// compare puts the subject beside the baseline.
func compare(results []summary) string {
	ours, found := find(results, subject)
	base, foundBase := find(results, baseline)
	switch {
	case !found || !foundBase:
		return "There are no two strategies to compare."
	case ours.Turns == 0 || base.Turns == 0:
		return fmt.Sprintf("No comparison: Latchkey made %s and %s %s; give more time with -duration.",
			count(ours.Turns, "turn"), base.Name, count(base.Turns, "turn"))
	}
	sentences := []string{fmt.Sprintf("%s, %s; its p99 wait was %s; slowest to fastest goroutine %.2f against %.2f.",
		turnsPhrase(ours.TurnsPerSecond/base.TurnsPerSecond),
		commandsPhrase(ours.Commands.PerTurn, base.Commands.PerTurn),
		waitPhrase(ours.Waits.P99, base.Waits.P99),
		ours.Fairness.SlowestToFastest, base.Fairness.SlowestToFastest)}
	for _, s := range results {
		if text := starvation(s); text != "" {
			sentences = append(sentences, text)
		}
	}
	return strings.Join(sentences, " ")
}

// aboutEqual is the ratio up to which a difference is not called one: two runs of
// one strategy differ by as much.
const aboutEqual = 1.05

func turnsPhrase(ratio float64) string {
	switch {
	case ratio > aboutEqual:
		return fmt.Sprintf("Latchkey made %.2gx as many turns as %s", ratio, baseline)
	case ratio < 1/aboutEqual:
		return fmt.Sprintf("Latchkey made fewer turns than %s, %.2gx as many", baseline, ratio)
	}
	return fmt.Sprintf("Latchkey made about as many turns as %s (%.2fx)", baseline, ratio)
}

func commandsPhrase(ours, base float64) string {
	figures := fmt.Sprintf("%.1f against %.1f", ours, base)
	switch {
	case ours > base*aboutEqual:
		return "with more Redis commands per turn (" + figures + ")"
	case ours < base/aboutEqual:
		return "with fewer Redis commands per turn (" + figures + ")"
	}
	return "with about as many Redis commands per turn (" + figures + ")"
}

func waitPhrase(ours, base float64) string {
	figures := milliseconds(ours) + " against " + milliseconds(base)
	switch {
	case ours > base*aboutEqual:
		return "longer (" + figures + ")"
	case ours < base/aboutEqual:
		return "shorter (" + figures + ")"
	}
	return "about the same (" + figures + ")"
}

// starvation says how many goroutines had next to no turns: a holder that takes
// the lock again at once makes many turns a second while the others sleep.
func starvation(s summary) string {
	starved := 0
	for _, n := range s.Fairness.Turns {
		if n*len(s.Fairness.Turns)*10 < s.Turns {
			starved++
		}
	}
	if starved == 0 {
		return ""
	}
	return fmt.Sprintf("With %s %d of %d goroutines had less than a tenth of their fair share of turns.",
		s.Name, starved, len(s.Fairness.Turns))
}

// whyPollingLeads says in one line where more turns of the baseline come from,
// if what was measured shows it: most of them followed a turn of the same
// goroutine. It is empty otherwise.
func whyPollingLeads(results []summary) string {
	ours, found := find(results, subject)
	base, foundBase := find(results, baseline)
	if !found || !foundBase || base.TurnsPerSecond <= ours.TurnsPerSecond*aboutEqual || !mostlyRetakes(base) {
		return ""
	}
	return fmt.Sprintf("Why %s leads: its releaser retakes the lock while others sleep, %.0f%% of turns (%s %.0f%%).",
		base.Name, 100*base.Retakes, ours.Name, 100*ours.Retakes)
}

// mostlyRetakes tells whether turns were nearer to always going to the goroutine
// that had the last one than to going to anybody by chance.
func mostlyRetakes(s summary) bool {
	byChance := 1 / float64(max(len(s.Fairness.Turns), 1))
	return s.Retakes > (1+byChance)/2
}

func find(results []summary, name string) (summary, bool) {
	for _, s := range results {
		if s.Name == name {
			return s, true
		}
	}
	return summary{}, false
}

// milliseconds writes a wait with two significant digits and a fitting unit.
func milliseconds(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2g ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
