package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// playRound lets all goroutines of one contestant contend for the given time and
// adds what they did to its tally. It returns the first error that is neither a
// lost lock nor the end of the round; that error ends the round early, as the
// end of ctx does.
func playRound(ctx context.Context, c *contestant, length time.Duration, p *progress) error {
	inside, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := newAuditor()
	workers := make([]*worker, c.shape.clients*c.shape.goroutines)
	var wg sync.WaitGroup
	before, began := c.commands.snapshot(), time.Now()
	for i := range workers {
		w := &worker{locker: c.lockers[i%c.shape.clients], auditor: watch, work: c.shape.work, pause: c.shape.pause}
		workers[i] = w
		wg.Go(func() {
			if err := w.run(inside); err != nil {
				stop(err)
			}
		})
	}
	p.follow(inside, length)
	after, ended := c.commands.snapshot(), time.Now()
	stop(errRoundOver)
	wg.Wait() // from here on the workers' results are this goroutine's

	c.tally.add(roundResult{workers: workers, auditor: watch, began: began, ended: ended, before: before, after: after})
	if err := context.Cause(inside); ctx.Err() == nil && !errors.Is(err, errRoundOver) {
		return err
	}
	return nil
}

// errRoundOver ends the waits that the end of a round cuts off.
var errRoundOver = errors.New("the round is over")

// worker is one goroutine that wants the lock again and again. Its results may
// be read when run has returned.
type worker struct {
	locker  locker
	auditor *auditor
	work    time.Duration
	pause   time.Duration // the longest one

	waits    []time.Duration // from asking to having
	sections []section
	askedAt  []time.Time // of the wait that the end of the round cut off, if it did
	lost     int         // locks that were gone when they were released
}

// run takes turns until ctx ends, which is no error, or until something fails.
// The first turn has a pause before it too, so that not all ask at once.
func (w *worker) run(ctx context.Context) error {
	for {
		upTo := rand.N(w.pause + 1)
		if pause(ctx, upTo) != nil {
			return nil //nolint:nilerr // the end of the round is no error
		}
		if err := w.turn(ctx); err != nil {
			return err
		}
	}
}

func (w *worker) turn(ctx context.Context) error {
	asked := time.Now()
	unlock, err := w.locker.lock(ctx)
	if err != nil {
		if ctx.Err() != nil {
			w.askedAt = append(w.askedAt, asked)
			err = nil
		}
		return err
	}
	w.waits = append(w.waits, time.Since(asked))
	w.sections = append(w.sections, w.auditor.inside(ctx, w.work))
	err = unlock(ctx)
	if errors.Is(err, errLost) {
		w.lost++
		return nil
	}
	return err
}
