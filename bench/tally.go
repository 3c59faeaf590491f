package main

import "time"

// tally adds up the rounds of one contestant.
type tally struct {
	turns      []int           // by goroutine
	waits      []time.Duration // of all turns, and the unfinished ones as long as they lasted
	unfinished int
	retakes    int
	rates      []float64 // turns per second, by round
	elapsed    time.Duration
	commands   map[string]int64 // by verb
	violations violations
	lost       int
	failure    error // what ended the run, if it was this strategy
}

func newTally(goroutines int) tally {
	return tally{turns: make([]int, goroutines), commands: make(map[string]int64)}
}

// roundResult is what is left of a round when all its workers have returned.
type roundResult struct {
	workers       []*worker
	auditor       *auditor
	began, ended  time.Time
	before, after map[string]int64 // commands
}

func (t *tally) add(r roundResult) {
	var sections []section
	byWorker := make([][]section, len(r.workers))
	for i, w := range r.workers {
		t.turns[i] += len(w.waits)
		t.waits = append(t.waits, w.waits...)
		for _, asked := range w.askedAt {
			t.waits = append(t.waits, max(r.ended.Sub(asked), 0)) // it may have asked at the last moment
		}
		t.unfinished += len(w.askedAt)
		t.lost += w.lost
		sections = append(sections, w.sections...)
		byWorker[i] = w.sections
	}
	t.retakes += retakes(byWorker)
	t.violations = t.violations.plus(r.auditor.verdict(sections))
	elapsed := r.ended.Sub(r.began)
	t.rates = append(t.rates, float64(len(sections))/elapsed.Seconds())
	t.elapsed += elapsed
	for verb, n := range r.after {
		if d := n - r.before[verb]; d > 0 {
			t.commands[verb] += d
		}
	}
}

// summarise computes the figures of the table.
func (t *tally) summarise(name string) summary {
	s := summary{
		Name: name, RoundTurnsPerSecond: t.rates, Violations: t.violations, LostLocks: t.lost,
		Waits:    waitsOf(t.waits, t.unfinished),
		Fairness: fairnessOf(t.turns),
		Commands: commands{ByVerb: t.commands},
	}
	for _, n := range t.turns {
		s.Turns += n
	}
	for _, n := range t.commands {
		s.Commands.Total += n
	}
	if s.Turns > 0 {
		s.TurnsPerSecond = float64(s.Turns) / t.elapsed.Seconds()
		s.Commands.PerTurn = float64(s.Commands.Total) / float64(s.Turns)
		s.Retakes = float64(t.retakes) / float64(s.Turns)
	}
	if t.failure != nil {
		s.Error = t.failure.Error()
	}
	return s
}
