package rlock

import (
	"sync"
	"time"
)

// serverClock estimates the clock of the Redis server from the replies, each of
// which carries it. Deadlines that the server judges are stated by it.
//
// A reply that carries "now" bounds the offset between both clocks: the server
// read its clock after the command was sent and before the reply arrived. As
// long as the estimate lies within the bounds it stays; otherwise it moves to
// the nearer one. A slow reply thus never spoils a good estimate. (The
// intersection of such intervals is Marzullo's algorithm, RFC 5905 section
// 11.2.1, for a single source.)
type serverClock struct {
	base time.Time // all local times count from here, by the monotonic clock

	mu     sync.Mutex
	offset int64 // server ms at base
}

// newServerClock starts from the local wall clock, until a reply says better.
func newServerClock() *serverClock {
	base := time.Now()
	return &serverClock{base: base, offset: base.UnixMilli()}
}

// at returns the server's clock, in ms, at a local time.
func (s *serverClock) at(local time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset + local.Sub(s.base).Milliseconds()
}

// observe takes in a reply that carried now, and when its command was sent and
// the reply received. A zero now says nothing.
func (s *serverClock) observe(sent, received time.Time, now int64) {
	if now <= 0 {
		return
	}
	// Milliseconds are cut off on both sides, so the upper bound has one more.
	low := now - received.Sub(s.base).Milliseconds()
	high := now - sent.Sub(s.base).Milliseconds() + 1
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = min(max(s.offset, low), high)
}
