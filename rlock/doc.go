// Package rlock is Latchkey's lock: Redisson's re-entrant RLock for Go, on
// Redis.
//
//	client, err := rlock.New(rdb, rlock.Options{})
//	...
//	err = client.NewRLock("order:42").Do(ctx, func(ctx context.Context) error {
//		return bill(ctx, order) // no other instance does; ctx ends if the lock is lost
//	})
//
// # What a lock is good for
//
// A lock on Redis reduces double execution. It does not prove ownership: a
// process that is stopped for longer than its lease, or a failover that loses
// the last writes, can let two owners in. The holder is told, but it may be told
// after it did something. What must never happen twice needs a fencing token, a
// conditional update or a unique constraint in the database besides.
//
// # Who holds it
//
// Go has no thread id, so ownership follows the call chain: a Lock whose context
// carries a live hold of the same client and name re-enters it, and any other
// Lock is a fresh owner. Do hands such a context to its function; Hold.Context
// makes one for the long form. Code that runs under it is inside the lock, its
// goroutines included; siblings under one hold take turns.
//
// # How it is kept
//
// Redis keeps a lock for a lease. The watchdog renews it every third of the
// lease, for as long as the hold is open and not longer, or not at all with
// WithLease. A hold is lost when Redis answers that it is gone, and otherwise when
// (the send time of the last confirmed command) + lease passes on the local
// monotonic clock. That sum is Hold.ValidUntil; Hold.Err, Hold.Lost and
// Hold.Context tell the loss.
//
// # How it is waited for
//
// The goroutines of one client that want one name queue in order. The first of
// them asks Redis, subscribes to the unlock channel, asks once more when the
// server has confirmed that, and sleeps until a message comes or the TTL of the
// lock ends. The others sleep for their turn. A key that vanished without a
// message is noticed within 5 s and a tenth, or within a hundredth of a second
// times the number of names that the client waits for, if that is longer.
//
// Three failures are told apart from a held lock: the caller's context ended,
// Redis failed, or the input was bad. Those of Redis that pass by themselves
// (no connection, no answer, LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN,
// TRYAGAIN) are tried again with a growing pause within the bounds of the call.
package rlock
