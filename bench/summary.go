package main

import (
	"math"
	"slices"
	"time"
)

// summary is what was measured of one strategy in one shape. The JSON names are stable: a
// field may be added, none changes its meaning. Figures per turn are 0 if there
// was no turn.
type summary struct {
	Name                string     `json:"name"`
	Turns               int        `json:"turns"`
	TurnsPerSecond      float64    `json:"turns_per_second"`
	RoundTurnsPerSecond []float64  `json:"round_turns_per_second"`
	Waits               waits      `json:"wait_ms"`
	Commands            commands   `json:"commands"`
	Fairness            fairness   `json:"fairness"`
	Retakes             float64    `json:"retakes"` // share of turns whose goroutine had the turn before too
	Violations          violations `json:"violations"`
	LostLocks           int        `json:"lost_locks"`
	Error               string     `json:"error,omitempty"`
}

// waits are times from asking for the lock to having it, in milliseconds.
type waits struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// Unfinished is how many waits the end of a round cut off. They count with
	// their length so far: without them a goroutine that starves would be
	// invisible.
	Unfinished int `json:"unfinished"`
}

// commands are what the strategy's clients sent, counted on the wire.
type commands struct {
	Total   int64            `json:"total"`
	PerTurn float64          `json:"per_turn"`
	ByVerb  map[string]int64 `json:"by_verb"`
}

// fairness compares the turns of the goroutines.
type fairness struct {
	SlowestToFastest float64 `json:"slowest_to_fastest"` // 1 is fair, 0: one had no turn
	Jain             float64 `json:"jain"`               // Jain's index: 1 is fair, 1/n: one had all
	Turns            []int   `json:"turns"`              // by goroutine
}

func waitsOf(all []time.Duration, unfinished int) waits {
	sorted := slices.Sorted(slices.Values(all))
	ms := func(p float64) float64 { return float64(percentile(sorted, p)) / float64(time.Millisecond) }
	return waits{P50: ms(0.50), P99: ms(0.99), Max: ms(1), Unfinished: unfinished}
}

// percentile returns the nearest-rank percentile: the smallest value that at
// least the share p, above 0 and at most 1, of all values do not exceed. It is 0
// if there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func fairnessOf(turns []int) fairness {
	f := fairness{Turns: turns}
	var sum, squares float64
	for _, n := range turns {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if sum > 0 {
		f.SlowestToFastest = float64(slices.Min(turns)) / float64(slices.Max(turns))
		f.Jain = sum * sum / (float64(len(turns)) * squares)
	}
	return f
}
