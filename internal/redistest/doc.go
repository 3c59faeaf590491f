// Package redistest starts real redis-servers for tests and measurements.
//
// It has two layers. The lower one (Start, Server and its process methods)
// knows nothing of tests, so that a command may start a server too. The upper
// one takes a TB, which *testing.T, *testing.B and *testing.F satisfy: New and
// Shared give a test its server, Client and Prefix give it a connection and
// keys of its own, and the Check functions say at the end what it left behind.
// Neither layer imports package testing.
//
// A server listens on a loopback port and has a temporary directory of its own.
// It ends with Stop, with the cleanup of the test that started it, or, for
// Shared, at the end of Main. When the process that started it is killed, Linux
// kills the server too; elsewhere it is left running.
//
// Nothing here can be used inside a testing/synctest bubble: a goroutine that
// waits for a process or a socket keeps the bubble's clock from moving.
package redistest
