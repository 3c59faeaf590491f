package rlocktest

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/rlock"
)

// Occupant is somebody else who holds a lock, such as another instance of the
// service. Kit.Occupy makes one; the zero value is of no use.
type Occupant struct {
	tb   TB
	hold *rlock.Hold
}

// Occupy lets somebody else hold the lock of this name, until Release or the
// end of the test, and renews it as another process would. With
// rlock.WithLease it is not renewed and ends by itself when the lease has
// passed, without a message to those who wait: so does the lock of a process
// that died.
//
// It ends the test if the lock is held already, by whomever.
func (k *Kit) Occupy(name string, opts ...rlock.LockOption) *Occupant {
	k.tb.Helper()
	hold, err := k.others.NewRLock(name).TryLock(context.Background(), 0, opts...)
	switch {
	case errors.Is(err, rlock.ErrNotAcquired):
		k.tb.Fatalf("rlocktest: Occupy(%q): not possible, it is %s", name, k.describe(k.look(name)))
	case err != nil:
		k.tb.Fatalf("rlocktest: Occupy(%q): %v", name, err)
	}
	return &Occupant{tb: k.tb, hold: hold}
}

// Release ends the occupation and wakes those who wait for the lock. If the
// occupation is over, because it was released, its lease has passed or the code
// under test has used ForceUnlock, Release does nothing. It never ends the test:
// if no answer comes, that is an error of it.
func (o *Occupant) Release() {
	o.tb.Helper()
	if err := o.hold.Unlock(context.Background()); err != nil && !errors.Is(err, rlock.ErrNotHeld) {
		o.tb.Errorf("rlocktest: Release of %q: %v", o.hold.Name(), err)
	}
}
