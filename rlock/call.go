package rlock

import (
	"context"
	"errors"
	"sync"
)

// errLeft says that a call was not waited for any longer.
var errLeft = errors.New("call left behind")

// call runs send in a goroutine of its own and waits for its answer until ctx
// ends or stop is closed. Then it returns errLeft and leaves the call behind:
// go-redis does not return from a read that is under way when its context is
// cancelled. What such a call brings later is given to late, in the call's
// goroutine; exactly one of the two, the caller or late, gets the answer.
func call[T any](
	ctx context.Context, c *Client, stop <-chan struct{},
	send func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var (
		mu       sync.Mutex
		left     bool // guarded by mu; set at most once, by the caller
		answered = make(chan struct{})
		answer   T
		err      error
	)
	c.calls.add()
	go func() {
		defer c.calls.done()
		got, failure := send(ctx)
		mu.Lock()
		behind := left
		if !behind {
			answer, err = got, failure
			close(answered)
		}
		mu.Unlock()
		if behind {
			late(got, failure)
		}
	}()

	select {
	case <-answered:
		return answer, err
	case <-ctx.Done():
	case <-stop:
	}
	mu.Lock()
	defer mu.Unlock()
	select {
	case <-answered: // it came while we turned away: not left
		return answer, err
	default:
		left = true
		return answer, errLeft
	}
}

// tally counts what is under way, so that somebody can wait for none to be.
// Unlike a sync.WaitGroup it may be raised from zero while somebody waits. The
// zero value is ready for use.
type tally struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // made by the first who waits, closed at zero
}

func (t *tally) add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

// none returns a channel that is closed when nothing is under way.
func (t *tally) none() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	return t.zero
}
