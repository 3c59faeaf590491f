package rlocktest

import (
	"context"
)

// Lose takes the lock of this name away from Client, as if an operator had
// removed it. When it returns, the lock is free, those who wait for it are
// woken, and the hold knows: its Lost is closed, its contexts have ended, its
// Err matches rlock.ErrLost. To see another owner in its place, call Occupy
// next.
//
// It ends the test if Client does not hold the lock in Redis; and while Fail is
// in force, because a client that cannot reach Redis learns of a loss by its
// clock alone: let the bubble's clock move by the lease instead.
//
// Call it when the code under test is inside the lock and says so: by a channel,
// or in a bubble after synctest.Wait. A Lock that has not returned yet gives a
// hold that learns of the loss by its next renewal.
func (k *Kit) Lose(name string) {
	k.tb.Helper()
	if err := k.network.failing(); err != nil {
		k.tb.Fatalf("rlocktest: Lose(%q): Redis fails (%v), so that Client would learn of the loss when its lease "+
			"has passed: call Lose before Fail, or let the time of the lease pass", name, err)
		return
	}
	held := k.look(name)
	if !k.ours(held.Owner) {
		k.tb.Fatalf("rlocktest: Lose(%q): it is %s: only Client can lose it", name, k.describe(held))
		return
	}
	k.ledger.lose(k.prefix+name, held.Owner)
	freed, err := k.client.NewRLock(name).ForceUnlock(context.Background())
	switch {
	case err != nil:
		k.tb.Fatalf("rlocktest: Lose(%q): %v", name, err)
	case !freed:
		k.tb.Fatalf("rlocktest: Lose(%q): Client gave it up at the same moment: call Lose while it is inside", name)
	}
}
