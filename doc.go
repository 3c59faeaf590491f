// Package latchkey is the root of a library of distributed locks on Redis, in
// the manner of Redisson: the same keys, the same channels, and a lock that is
// kept while its holder lives.
//
// The root package itself has no code. Where to go:
//
//   - [github.com/latchkey-go/latchkey/rlock] has the locks. Start there: a
//     client made with rlock.New, a re-entrant lock, and Do, which takes the
//     lock, runs a function and always releases.
//
//   - [github.com/latchkey-go/latchkey/watchdog] keeps leases alive and says when
//     one is lost. It knows no Redis and uses the standard library only.
//
//   - [github.com/latchkey-go/latchkey/pubsub] wakes waiters: one subscription
//     connection shared by everything in the process that waits on a channel.
//
//   - [github.com/latchkey-go/latchkey/rlock/rlocktest] tests code that uses
//     locks, without a server.
//
// watchdog and pubsub serve rlock and are useful alone.
//
// The folder docs explains the design, the format in Redis, what a lock cannot
// promise (docs/failure-modes.md), how to run it and how to work on it.
package latchkey
