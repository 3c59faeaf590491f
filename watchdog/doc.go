// Package watchdog keeps leases alive and says when one is lost.
//
// A lease is a right that some server grants for a limited time and that has to be renewed before that time runs out:
// a lock with a time to live, a presence key, a claimed job. The package knows no server. The caller gives [New] a
// function that renews a batch of keys, hands over each granted lease with [Watchdog.Keep], and looks at [Lease.Err],
// [Lease.Lost] or Options.OnLost to learn that a lease has ended against its will.
//
// # When a lease is valid
//
// A lease is valid until (send time of the last confirmed command) + (its duration), by the local monotonic clock. The
// send time is taken before the command goes out, so the local estimate never ends later than the server's, whatever the
// network does, as long as both clocks run at the same speed. A lease is lost
//
//   - with [ErrExpired] at that instant, even while a renewal hangs,
//   - with [ErrGone] as soon as a renewal answers that the server no longer has it,
//   - with [ErrClosed] when the watchdog is closed.
//
// A lost lease stays lost. Timers fire late when the process was stopped or the machine was busy, so every method that
// tells about a lease compares the clock itself: once the instant has passed, the first call sees the loss, and an answer
// "renewed" that comes in after that is too late. The monotonic clock of most systems stands still while the machine is
// suspended: that time is not counted.
//
// # When a lease is renewed
//
// The renewal interval of a lease is lease / Options.RenewalsPerLease, at least 1 ms. A renewal is due one interval
// after the last one was sent (the answer's time does not matter). Whenever something is due, whatever else falls due
// within an eighth of the interval after it goes out too, so that leases with scattered phases meet in full batches after
// one round and stay together; no renewal is ever put off to join others. A batch holds keys of one group only, at most
// Options.BatchSize of them, and runs in a goroutine of its own, so a slow group never delays another.
//
// The context of a renewal ends half an interval after it was sent (in a batch of different intervals: half of the
// shortest). A lease whose renewal has had no answer for half of its interval, or the answer [Unknown], is tried again
// after a sixteenth of the interval, then after an eighth, then every quarter. When less than twice that pause is left,
// the next attempt comes halfway to the end of the lease, until less than a 32nd of an interval is left: then the end is
// awaited. The call without an answer is left behind; when it answers after all, its [Renewed] counts from its own send
// time, and its [Gone] is a loss. Retries may be sent early to join others too, by an eighth of their pause.
//
// # What it costs
//
// One timer serves all leases. While nothing is kept, there is no armed timer and no goroutine; while leases are kept and
// no renewal runs, there is a timer and no goroutine.
package watchdog
