// Package rlocktest tests code that uses Latchkey's locks: inside the process,
// with no Redis server, outside or inside a testing/synctest bubble.
//
//	func TestReportWaits(t *testing.T) {
//		kit := rlocktest.New(t, rlock.Options{})
//		other := kit.Occupy("report") // somebody else is at it
//
//		err := WriteReport(t.Context(), kit.Client()) // the code under test
//		if !errors.Is(err, rlock.ErrNotAcquired) {
//			t.Errorf("WriteReport while another writes: %v", err)
//		}
//
//		other.Release()
//		if err := WriteReport(t.Context(), kit.Client()); err != nil {
//			t.Error(err)
//		}
//		kit.AssertReleased("report")
//	}
//
// New gives the code under test a real *rlock.Client. Kit.Occupy lets somebody
// else hold a lock, Kit.Lose takes one from the code, Kit.Fail breaks Redis, and
// Kit.Acquired, Kit.AssertReleased and the like tell what the code did.
//
// # Time
//
// Whatever takes time is best tested in a bubble: a lease of 30 s that runs out,
// a renewal that fails, a wait that ends, an Unlock that tries for 5 s while
// Redis is away. Call New inside the bubble, with the bubble's t; the example
// "Bubble" shows a whole test. The clock of the bubble is then that of the code,
// of the client and of Redis, it moves only when all of them wait, and what
// takes no waiting takes no time. Outside a bubble the same things happen in
// real time.
//
// # What it proves, and what it does not
//
// The client is the real one, with its scripts, queue and watchdog. So a test
// shows what the code under test does with each answer that a lock can give:
// that it holds the lock while it should, gives it back on every path, stops
// when it loses it, and tells a held lock from a failing Redis.
//
// In place of Redis there is miniredis, a single server that never fails over,
// loses no data, and has no network that could delay, repeat or lose a message:
// a command that fails was not executed. Its clock and the client's are one.
// Nothing here says how the code fares with a failover, a cluster, a stopped
// process or a slow network; for these, test against real servers.
package rlocktest
