package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newJob(t *testing.T, client *rlock.Client, steps ...Step) *Job {
	t.Helper()
	return &Job{Lock: client.NewRLock(lockName), Steps: steps, Logf: t.Logf}
}

// step is one that succeeds at once.
func step(name string) Step {
	return Step{Name: name, Work: func(context.Context) error { return nil }}
}

// blockingRender is the step "render": it says when it has begun, and ends with its context or when release is closed.
func blockingRender() (s Step, begun chan struct{}, release chan struct{}) {
	begun, release = make(chan struct{}), make(chan struct{})
	return Step{Name: "render", Work: func(ctx context.Context) error {
		close(begun)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}, begun, release
}

// start runs the job and returns where its result will be.
func start(ctx context.Context, job *Job) <-chan error {
	result := make(chan error, 1)
	go func() { result <- job.Run(ctx) }()
	return result
}

// assertStopped checks that a job stopped in the step "render", after "collect".
func assertStopped(t *testing.T, err, cause error) {
	t.Helper()
	var stopped *StoppedError
	if !errors.As(err, &stopped) || !errors.Is(err, cause) {
		t.Fatalf("Run = %v, want a StoppedError because of %v", err, cause)
	}
	t.Log(err)
	if !slices.Equal(stopped.Done, []string{"collect"}) || stopped.HalfDone != "render" {
		t.Errorf("done %v, half done %q", stopped.Done, stopped.HalfDone)
	}
}

func TestRunBusy(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	kit.Occupy(lockName)
	job := newJob(t, kit.Client(), Step{Name: "never", Work: func(context.Context) error {
		t.Error("ran beside another instance")
		return nil
	}})

	err := job.Run(t.Context())
	if !errors.Is(err, rlock.ErrNotAcquired) {
		t.Fatalf("Run = %v, want ErrNotAcquired", err)
	}
	t.Log(err)

	if err := job.Force(t.Context()); err != nil {
		t.Fatal(err)
	}
	kit.AssertFree(lockName)
}

func TestRunStopsWhenLost(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	render, begun, _ := blockingRender()
	result := start(t.Context(), newJob(t, kit.Client(), step("collect"), render, step("send")))

	<-begun
	kit.Lose(lockName)
	assertStopped(t, <-result, rlock.ErrLost)
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	render, begun, _ := blockingRender()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := start(ctx, newJob(t, kit.Client(), step("collect"), render, step("send")))

	<-begun
	cancel()
	assertStopped(t, <-result, context.Canceled)
	kit.AssertReleased(lockName)
}

func TestStepsAreInsideTheLockOfTheJob(t *testing.T) {
	kit := rlocktest.New(t, rlock.Options{})
	lock := kit.Client().NewRLock(lockName)
	job := newJob(t, kit.Client(), Step{Name: "nested", Work: func(ctx context.Context) error {
		if hold, held := lock.HoldFrom(ctx); !held || hold.Depth() != 2 {
			t.Errorf("the step holds the lock: %v, %v", held, hold)
		}
		return nil
	}})

	if err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := kit.Acquired(lockName); n != 1 {
		t.Errorf("acquired %d times, want once", n)
	}
	kit.AssertReleased(lockName)
}

// newInstance is a job with connections and a client of its own, as in another process.
func newInstance(t *testing.T, server *redistest.Server, steps ...Step) *Job {
	t.Helper()
	client, err := rlock.New(server.Client(t), rlock.Options{Lease: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return newJob(t, client, steps...)
}

func TestOneOfTwoInstancesRuns(t *testing.T) {
	server := redistest.New(t, redistest.Config{})
	render, begun, release := blockingRender() // closing begun twice would panic: two instances inside
	results := make(chan error, 2)
	for range 2 {
		job := newInstance(t, server, render)
		go func() { results <- job.Run(t.Context()) }()
	}

	<-begun
	if err := <-results; !errors.Is(err, rlock.ErrNotAcquired) {
		t.Errorf("the instance that ends first: %v, want ErrNotAcquired", err)
	}
	close(release)
	if err := <-results; err != nil {
		t.Errorf("the instance that runs: %v", err)
	}
	server.CheckNoKeys(t, lockName)
}

func TestForceStopsTheRunningInstance(t *testing.T) {
	server := redistest.New(t, redistest.Config{})
	render, begun, _ := blockingRender()
	result := start(t.Context(), newInstance(t, server, step("collect"), render, step("send")))

	<-begun
	if err := newInstance(t, server).Force(t.Context()); err != nil {
		t.Fatal(err)
	}
	assertStopped(t, <-result, rlock.ErrLost)
}
