package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// strategy is one way to take turns. A new one is a file of its own and a line
// in allStrategies.
type strategy interface {
	// name is one word, for tables and JSON.
	name() string
	// about says in one line what it does.
	about() string
	// open makes the lock called key for one client, whose goroutines share it.
	// It does not close rdb, which its caller keeps.
	open(rdb *redis.Client, key string, s settings) (locker, error)
}

// locker is one client's access to the lock. Its methods are called by all
// goroutines of the client at once.
type locker interface {
	// lock waits until the caller has the lock, or until ctx ends. After an
	// error the caller does not have it.
	lock(ctx context.Context) (unlockFunc, error)
	// close ends what the locker runs in the background. Nothing is locked then.
	close() error
}

// unlockFunc releases the lock, also when ctx has ended. It returns an error that
// matches errLost if the lock was gone before it was released.
type unlockFunc func(ctx context.Context) error

// errLost says that a lock was not its holder's any more when it was released.
var errLost = errors.New("the lock was lost while it was held")

// settings are what a strategy may need to know of the run.
type settings struct {
	poll time.Duration // between two attempts, for those that poll
}

// The names that the verdict compares.
const (
	subject  = "latchkey"
	baseline = "polling"
)

// allStrategies returns what is compared, in the order of the table.
func allStrategies() []strategy {
	return []strategy{pollingStrategy{}, latchkeyStrategy{}}
}
