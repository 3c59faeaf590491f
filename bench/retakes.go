package main

import (
	"cmp"
	"slices"
	"time"
)

// retakes counts the turns of goroutines that had had the turn before too.
func retakes(byWorker [][]section) int {
	type turn struct {
		worker int
		enter  time.Duration
	}
	var turns []turn
	for i, sections := range byWorker {
		for _, s := range sections {
			turns = append(turns, turn{i, s.enter})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.enter, b.enter) })
	found := 0
	for i := 1; i < len(turns); i++ {
		if turns[i].worker == turns[i-1].worker {
			found++
		}
	}
	return found
}
