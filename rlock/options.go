package rlock

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of Options.
const (
	defaultLease         = 30 * time.Second // lockWatchdogTimeout in Redisson
	defaultUnlockTimeout = 5 * time.Second
	defaultRenewals      = 3 // renewals in a lease
)

// Limits of what a caller may ask for.
const (
	minLease      = time.Millisecond
	minRenewEvery = time.Millisecond
	maxLease      = 10 * 365 * 24 * time.Hour
	maxKeyBytes   = 4096
)

// Options configures a Client. The zero value is valid and means the defaults.
type Options struct {
	// Lease is how long Redis keeps a lock that nobody renews: 30 s by
	// default, at least 1 ms, in whole milliseconds. A crashed holder blocks
	// the others for at most this long; a holder that cannot reach Redis for
	// this long has lost its locks. Redisson calls it lockWatchdogTimeout.
	Lease time.Duration

	// RenewEvery is the time between two renewals of a held lock: Lease/3 by
	// default, at least 1 ms, at most Lease/2, so that one failed renewal loses nothing. A
	// lock with its own WithWatchdog lease is renewed in the same proportion.
	RenewEvery time.Duration

	// UnlockTimeout bounds a release, which ignores the cancellation of its
	// caller: 5 s by default, at least 1 ms.
	UnlockTimeout time.Duration

	// KeyPrefix is put before every lock's name to make its Redis key, as
	// Redisson's nameMapper can; empty by default.
	KeyPrefix string

	// Logger receives what no return value can tell: a lost lock, a failing
	// renewal, missing rights on the unlock channel. Nil discards it.
	Logger *slog.Logger
}

// withDefaults returns the options with every zero field filled in.
func (o Options) withDefaults() Options {
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	o.Lease = o.Lease.Truncate(time.Millisecond)
	if o.RenewEvery == 0 {
		o.RenewEvery = o.Lease / defaultRenewals
	}
	if o.UnlockTimeout == 0 {
		o.UnlockTimeout = defaultUnlockTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// validate checks the fields as the caller gave them, and their relations.
func (o Options) validate() error {
	if o.Lease != 0 {
		if err := checkLease("Options.Lease", o.Lease); err != nil {
			return err
		}
	}
	filled := o.withDefaults()
	short := o.RenewEvery != 0 && o.RenewEvery < min(minRenewEvery, filled.Lease/2)
	if short || filled.RenewEvery > filled.Lease/2 {
		return fmt.Errorf("rlock: Options.RenewEvery is %v: it must be at least %v and at most half of Lease (%v); "+
			"leave it 0 for a third", o.RenewEvery, minRenewEvery, filled.Lease)
	}
	if filled.UnlockTimeout < time.Millisecond {
		return fmt.Errorf("rlock: Options.UnlockTimeout is %v: it must be at least 1ms; leave it 0 for %v",
			o.UnlockTimeout, defaultUnlockTimeout)
	}
	if len(o.KeyPrefix) >= maxKeyBytes {
		return fmt.Errorf("rlock: Options.KeyPrefix has %d bytes: prefix and name together may have %d",
			len(o.KeyPrefix), maxKeyBytes)
	}
	return nil
}

// checkLease returns an error that names the field for a lease out of bounds.
func checkLease(field string, d time.Duration) error {
	switch {
	case d < minLease:
		return fmt.Errorf("rlock: %s is %v: Redis counts in milliseconds, so a lease is at least %v", field, d, minLease)
	case d > maxLease:
		return fmt.Errorf("rlock: %s is %v: a lease is at most %v", field, d, maxLease)
	}
	return nil
}

// checkServer refuses what cannot carry a lock.
func checkServer(rdb redis.UniversalClient) error {
	if rdb == nil || (reflect.ValueOf(rdb).Kind() == reflect.Pointer && reflect.ValueOf(rdb).IsNil()) {
		return errors.New("rlock: New needs a go-redis client, got nil")
	}
	if _, ring := rdb.(*redis.Ring); ring {
		return errors.New("rlock: New got a *redis.Ring: a ring that drops or adds a shard moves names to another " +
			"server and grants their locks twice; use one server, Sentinel or Cluster")
	}
	return nil
}

// A LockOption changes one Lock, TryLock, Do or TryDo. A nil LockOption changes
// nothing.
type LockOption func(*terms)

// terms are what one acquisition asks for.
type terms struct {
	lease    time.Duration // whole milliseconds
	watched  bool          // the watchdog renews the lease
	explicit string        // the option that set the lease, if one did
	err      error
}

// WithLease asks for a fixed lease: the lock ends after d, at least 1 ms and
// counted in whole milliseconds, unless it is unlocked before or extended by
// Hold.Renew. No watchdog renews it, and nobody looks after it before Unlock.
// Zero or less is an error: leave WithLease out to use the watchdog.
func WithLease(d time.Duration) LockOption {
	return func(t *terms) {
		t.set("WithLease", d, false)
		if d <= 0 {
			t.err = fmt.Errorf("rlock: WithLease(%v): a fixed lease is at least %v; "+
				"leave WithLease out to use the watchdog", d, minLease)
		}
	}
}

// WithWatchdog asks for another watchdog lease than Options.Lease for this
// lock: at least 1 ms, counted in whole milliseconds, renewed in the proportion
// of Options.RenewEvery to Options.Lease.
func WithWatchdog(d time.Duration) LockOption {
	return func(t *terms) { t.set("WithWatchdog", d, true) }
}

func (t *terms) set(option string, d time.Duration, watched bool) {
	if err := checkLease(option, d); err != nil && t.err == nil {
		t.err = err
	}
	if t.explicit != "" && t.err == nil {
		t.err = fmt.Errorf("rlock: %s and %s given together: one lock has one lease, give one of them", t.explicit, option)
	}
	t.explicit, t.lease, t.watched = option, d.Truncate(time.Millisecond), watched
}

// termsOf applies the options on top of the client's defaults.
func (c *Client) termsOf(opts []LockOption) (terms, error) {
	t := terms{lease: c.opts.Lease, watched: true}
	for _, option := range opts {
		if option != nil {
			option(&t)
		}
	}
	return t, t.err
}
