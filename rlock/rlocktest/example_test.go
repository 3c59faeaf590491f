package rlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

// exampleTB stands for the *testing.T of your test.
type exampleTB struct{ cleanups []func() }

func (*exampleTB) Helper() {}

func (*exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (*exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *exampleTB) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// Code that does not wait for a lock skips its work while another does it.
func ExampleKit_Occupy() {
	t := new(exampleTB) // in a test: its t
	defer t.end()

	// The code under test.
	cleanUp := func(ctx context.Context, locks *rlock.Client) error {
		err := locks.NewRLock("clean-up").TryDo(ctx, 0, func(context.Context) error {
			fmt.Println("cleaning up")
			return nil
		})
		if errors.Is(err, rlock.ErrNotAcquired) {
			fmt.Println("another instance is at it")
			return nil
		}
		return err
	}

	kit := rlocktest.New(t, rlock.Options{})
	ctx := context.Background() // in a test: t.Context()

	other := kit.Occupy("clean-up")
	fmt.Println(cleanUp(ctx, kit.Client()), kit.Acquired("clean-up"))
	other.Release()
	fmt.Println(cleanUp(ctx, kit.Client()), kit.Acquired("clean-up"))
	kit.AssertReleased("clean-up")

	// Output:
	// another instance is at it
	// <nil> 0
	// cleaning up
	// <nil> 1
}

// Work that listens to its context stops when the lock is lost.
func ExampleKit_Lose() {
	t := new(exampleTB) // in a test: its t
	defer t.end()

	// The code under test.
	migrate := func(ctx context.Context, locks *rlock.Client, started chan<- struct{}) error {
		return locks.NewRLock("migration").Do(ctx, func(ctx context.Context) error {
			close(started)
			<-ctx.Done() // stands for work that ends with its context
			return context.Cause(ctx)
		})
	}

	kit := rlocktest.New(t, rlock.Options{})
	started, done := make(chan struct{}), make(chan error)
	go func() { done <- migrate(context.Background(), kit.Client(), started) }()

	<-started
	kit.AssertHeld("migration")
	kit.Lose("migration")
	fmt.Println("lost:", errors.Is(<-done, rlock.ErrLost))
	kit.AssertFree("migration")

	// Output:
	// lost: true
}

// Code that tells a lock that is held from a Redis that fails.
func ExampleKit_Fail() {
	t := new(exampleTB) // in a test: its t
	defer t.end()

	// The code under test.
	status := func(ctx context.Context, locks *rlock.Client) string {
		err := locks.NewRLock("import").TryDo(ctx, 0, func(context.Context) error { return nil })
		switch {
		case err == nil:
			return "imported"
		case errors.Is(err, rlock.ErrNotAcquired):
			return "an import is running"
		default:
			return "no locks to be had: " + err.Error()
		}
	}

	kit := rlocktest.New(t, rlock.Options{})
	ctx := context.Background() // in a test: t.Context()

	kit.Fail(errors.New("no route to host"))
	fmt.Println(status(ctx, kit.Client()))
	kit.Fail(rlocktest.Reply("LOADING Redis is loading the dataset in memory"))
	fmt.Println(status(ctx, kit.Client()))
	kit.Fail(nil)
	fmt.Println(status(ctx, kit.Client()))

	// Output:
	// no locks to be had: TryDo "import": dial pipe: no route to host
	// no locks to be had: TryDo "import": LOADING Redis is loading the dataset in memory
	// imported
}
