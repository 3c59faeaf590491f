// Package scenarios holds tests alone: faults met in the field with distributed
// locks, each played out as a black box against the public API of package
// rlock, a real redis-server and a network that fails.
//
// The name of a test begins with the number of its case, and docs/faults.md
// lists them all. Every test ends with the same questions: were two owners ever
// inside at one time, is any key or channel left in Redis, and are the
// goroutines gone.
//
// Where a case asks for more rounds than an everyday run can afford, it runs a
// part of them; the environment variable LATCHKEY_FULL=1 asks for all. The tests
// take minutes even so, and have the build tag scenarios: make scenarios.
package scenarios
