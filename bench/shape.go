package main

import (
	"fmt"
	"time"
)

// shape is a way to load one lock. All strategies are measured in each.
type shape struct {
	name       string // stable: it is in the JSON
	about      string // what in the world is like that
	clients    int
	goroutines int // for each client
	work       time.Duration
	pause      time.Duration // between the turns of a goroutine: a random time up to this
}

// customShape is the name of a shape that the flags describe.
const customShape = "custom"

// standardShapes returns what is measured unless the flags say otherwise, in the
// order of the report. They differ in what a goroutine does after its turn, and
// that alone turns the comparison round.
func standardShapes() []shape {
	requests := shape{
		name:    "requests",
		about:   "each turn is for another request, as in most services",
		clients: 4, goroutines: 4, work: time.Millisecond, pause: 10 * time.Millisecond,
	}
	loop := requests
	loop.name, loop.pause = "loop", 0
	loop.about = "who releases wants the lock again at once, as in a batch job"
	return []shape{requests, loop}
}

// load says how the lock is loaded.
func (s shape) load() string {
	between := "no pause between turns"
	if s.pause > 0 {
		between = fmt.Sprintf("a pause of 0 to %v between turns", s.pause)
	}
	return fmt.Sprintf("%d clients x %d goroutines on one name, %v inside, %s", s.clients, s.goroutines, s.work, between)
}
