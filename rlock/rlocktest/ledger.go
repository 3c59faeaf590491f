package rlocktest

import (
	"slices"
	"strings"
	"sync"
)

// ledger counts what Client does to locks, by the commands that reach their
// keys inside the server. It knows how a lock is spelled in Redis, which is the
// same as Redisson's and does not change, and not what the scripts are: an
// acquisition sets a field with a fresh owner id, a release deletes the key or
// the field, a re-entry sets the field that is there.
//
// The server shows a command before it executes it and long before its reply
// arrives, so whoever has got an answer from the client finds it counted.
type ledger struct {
	prefix string // of Client's owner ids

	mu       sync.Mutex
	accounts map[string]*account // by key
}

// account is what is known of one lock.
type account struct {
	acquired, released int

	// open is Client's owner whose field was set last and was neither deleted
	// nor replaced; "" if there is none. Its lease may have run out.
	open string
}

func newLedger(prefix string) *ledger {
	return &ledger{prefix: prefix, accounts: make(map[string]*account)}
}

// see takes in a command, in the order in which the server executes those that
// concern one key: scripts run one at a time.
func (l *ledger) see(command string, args []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case command == "HSET" && len(args) > 1:
		l.set(args[0], args[1])
	case command == "HDEL" && len(args) > 1:
		if a := l.accounts[args[0]]; a != nil && slices.Contains(args[1:], a.open) {
			a.release()
		}
	case command == "DEL":
		for _, key := range args {
			l.accounts[key].release()
		}
	}
}

// set takes in that an owner has a field, for the first time or again. Called
// with mu held.
func (l *ledger) set(key, owner string) {
	a := l.accounts[key]
	if a == nil {
		a = &account{}
		l.accounts[key] = a
	}
	switch {
	case owner == a.open:
	case strings.HasPrefix(owner, l.prefix):
		a.open = owner
		a.acquired++
	default:
		a.open = "" // its lease has run out, else nobody could have got the lock
	}
}

// release takes in that the key or the owner's field goes.
func (a *account) release() {
	if a == nil || a.open == "" {
		return
	}
	a.open = ""
	a.released++
}

// lose takes in that an owner's field goes without being released.
func (l *ledger) lose(key, owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[key]; a != nil && a.open == owner {
		a.open = ""
	}
}

// of returns what is known of a lock.
func (l *ledger) of(key string) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[key]; a != nil {
		return *a
	}
	return account{}
}

// open returns the keys whose last acquisition was not seen to end.
func (l *ledger) open() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for key, a := range l.accounts {
		if a.open != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
