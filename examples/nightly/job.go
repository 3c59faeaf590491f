package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/rlock"
)

// Step is one part of the report.
type Step struct {
	Name string
	// Work must return soon after its context has ended, with the context's cause.
	Work func(ctx context.Context) error
}

// Job writes the report. Of all instances that run it at the same time, one gets the lock.
type Job struct {
	Lock  *rlock.RLock
	Steps []Step
	Logf  func(format string, args ...any)
}

// StoppedError says how far a job came that has begun and did not end well.
type StoppedError struct {
	Reason   string
	Done     []string // finished steps
	HalfDone string   // the step that was cut off, which somebody has to look at; empty if none was
	Err      error
}

// Error says why the job stopped and what it leaves behind.
func (e *StoppedError) Error() string {
	halfDone := "nothing"
	if e.HalfDone != "" {
		halfDone = e.HalfDone
	}
	return fmt.Sprintf("stopped: %s; done: [%s]; half done: %s", e.Reason, strings.Join(e.Done, ", "), halfDone)
}

// Unwrap returns Err.
func (e *StoppedError) Unwrap() error { return e.Err }

// Run runs the job, unless another instance is at it: then the error matches rlock.ErrNotAcquired and says who that is.
// A job that stops on the way returns a *StoppedError.
//
// The lock keeps instances apart that run at the same time. An instance that starts when the first has finished runs the
// report again: a real job looks, inside the lock, whether tonight's report is there already.
func (j *Job) Run(ctx context.Context) error {
	started := false // not told from LockError.Op: the nested locks of the steps return such errors, too
	progress := StoppedError{}

	err := j.Lock.TryDo(ctx, 0, func(ctx context.Context) error {
		started = true
		j.describeHold(ctx)
		for _, step := range j.Steps {
			if err := j.runStep(ctx, step, &progress); err != nil {
				return fmt.Errorf("step %s: %w", step.Name, err)
			}
		}
		return nil
	})

	switch {
	case err == nil:
		return nil
	case !started && errors.Is(err, rlock.ErrNotAcquired):
		return j.busy(ctx, err)
	case !started:
		return fmt.Errorf("not started: %w", err)
	case errors.Is(err, rlock.ErrLost):
		progress.Reason = "the lock was taken away, another instance may be running"
	case ctx.Err() != nil:
		progress.Reason = "interrupted"
	default:
		progress.Reason = err.Error()
	}
	progress.Err = err
	return &progress
}

// runStep does one step inside the job's lock. Called with the context of Run's TryDo it re-enters the lock; called from
// elsewhere it would wait for it. The re-entry asks Redis, so no step begins after the lock was taken away.
func (j *Job) runStep(ctx context.Context, step Step, progress *StoppedError) error {
	return j.Lock.Do(ctx, func(ctx context.Context) error {
		j.Logf("step %s ...", step.Name)
		progress.HalfDone = step.Name
		if err := step.Work(ctx); err != nil {
			return err
		}
		progress.HalfDone = ""
		progress.Done = append(progress.Done, step.Name)
		return nil
	})
}

// describeHold says under which name others see this instance.
func (j *Job) describeHold(ctx context.Context) {
	if hold, held := j.Lock.HoldFrom(ctx); held {
		j.Logf("running as %s", hold.Owner())
	}
}

// busy adds to err who holds the lock.
func (j *Job) busy(ctx context.Context, err error) error {
	info, infoErr := j.Lock.Info(ctx)
	switch {
	case infoErr != nil:
		return errors.Join(err, infoErr)
	case !info.Held:
		return fmt.Errorf("another instance was running and has just finished: %w", err)
	default:
		return fmt.Errorf("another instance is running, %s: %w", info.Owner, err)
	}
}

// Force takes the lock away from the instance that holds it. That one stops at its next step or renewal, so it may go on
// for a third of the lease.
func (j *Job) Force(ctx context.Context) error {
	info, err := j.Lock.Info(ctx) // for the message only: the holder may change before ForceUnlock looks
	if err != nil {
		return err
	}
	taken, err := j.Lock.ForceUnlock(ctx)
	switch {
	case err != nil:
		return err
	case taken:
		j.Logf("lock taken away; last seen with %s", info.Owner)
	default:
		j.Logf("nothing taken away: no instance held the lock, or it has just finished")
	}
	return nil
}
