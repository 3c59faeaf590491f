// Package embedded runs miniredis, a Redis written in Go, inside the process,
// with a clock that runs: keys expire by themselves.
//
// It is there for the embedded demo and for quick runs without a redis-server.
// It proves nothing about time or failover: its expiry, its scripts and its
// answers are miniredis' own reading of Redis, there is one node that cannot
// fail over, and sharded pub/sub, ACLs and most of INFO are missing. A statement
// about what Redis does is tested against a real server (package redistest).
//
// Start gives a server on a TCP port. NewInBubble gives one that is reached
// through pipes, which is what a testing/synctest bubble needs.
package embedded
