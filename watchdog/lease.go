package watchdog

import (
	"sync/atomic"
	"time"
)

// Lease is one lease that a [Watchdog] keeps. All methods are safe for concurrent use, and none of them waits for a call
// of renew or OnLost. The zero value is not usable: see [Watchdog.Keep].
type Lease[K any] struct {
	w     *Watchdog[K]
	key   K
	group string
	lease time.Duration

	// Written with w.mu held, also read without it (see Err).
	validity atomic.Int64 // the instant at which the lease ends
	status   atomic.Uint32

	// The rest is guarded by w.mu.
	tries uint8         // retries since the last Renewed
	at    time.Duration // when the agenda looks at the lease: for a renewal, for its lack of an answer, or for its end
	slack time.Duration // how much earlier it may go out to join others
	batch *batch[K]     // the renewal that is waited for, nil if none
	lost  chan struct{} // made when first asked for
	index int           // in the agenda
}

// absent is the index of a lease that is not in the agenda.
const absent = -1

// state says whether a lease is kept and why not. It changes once, from live to another.
type state uint32

const (
	live state = iota
	stopped
	gone
	expired
	closed
)

func (s state) err() error {
	switch s {
	case gone:
		return ErrGone
	case expired:
		return ErrExpired
	case closed:
		return ErrClosed
	default:
		return nil
	}
}

func (l *Lease[K]) state() state                   { return state(l.status.Load()) }
func (l *Lease[K]) until() time.Duration           { return time.Duration(l.validity.Load()) }
func (l *Lease[K]) setUntil(instant time.Duration) { l.validity.Store(int64(instant)) }

// Stop ends the keeping: from its return on no batch that contains the lease starts, and an answer that comes later is
// ignored. A batch starts at the instant from which its context's deadline counts, just before renew is called with
// it; a call that has started is not interrupted. Stop tells the server nothing: the lease lasts there until it runs out.
//
// For a lease stopped while it is valid, Err stays nil, Lost stays open and OnLost is not called. A lease that has been
// lost, or whose time has passed when Stop is called, stays lost. Further calls change nothing.
func (l *Lease[K]) Stop() {
	l.w.mu.Lock()
	defer l.w.unlock()
	if l.state() != live || l.w.expire(l, l.w.now()) {
		return
	}
	l.w.drop(l)
	l.status.Store(uint32(stopped))
}

// Extend notes that another command than a renewal has given the lease a validity of d, counted from sent, a time stamp
// taken before that command was sent (in the future: counts as now). It raises ValidUntil to sent+d if that is later; it
// never shortens a lease and never revives one that was stopped or lost. Renewals go on at their interval, each for the
// duration given to Keep.
func (l *Lease[K]) Extend(sent time.Time, d time.Duration) {
	l.w.mu.Lock()
	defer l.w.unlock()
	now := l.w.now()
	if d <= 0 || l.state() != live || l.w.expire(l, now) {
		return
	}
	// The agenda need not know: it looks at the lease at the old end at the latest, and then finds it valid.
	l.raise(add(l.w.instant(sent, now), d))
}

// raise moves the end of the lease to until if that is later. w.mu is held.
func (l *Lease[K]) raise(until time.Duration) {
	l.setUntil(max(l.until(), until))
}

// Err returns nil while the lease is valid and after it was stopped while valid, and ErrGone, ErrExpired or ErrClosed
// once it is lost. It compares the clock: when ValidUntil has passed, the lease is lost from this call on at the latest.
// Before Err first returns a non-nil error, Lost is closed.
func (l *Lease[K]) Err() error {
	// Without the lock, so that a holder can ask before each step of its work. If the end read first is still to come and
	// the lease is live after that, it was live and valid at the second reading: a loss sets the state before it lowers
	// the end, and nothing raises the end of a lease that is not live.
	if l.until() > l.w.now() && l.state() == live {
		return nil
	}
	l.w.mu.Lock()
	defer l.w.unlock()
	l.w.expire(l, l.w.now())
	return l.state().err()
}

// Lost returns a channel that is closed when the lease is lost, and never for a lease stopped while valid. It compares
// the clock like Err. Err returns the reason to everyone who has seen the channel closed.
func (l *Lease[K]) Lost() <-chan struct{} {
	l.w.mu.Lock()
	defer l.w.unlock()
	l.w.expire(l, l.w.now())
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.state().err() != nil {
			close(l.lost)
		}
	}
	return l.lost
}

// ValidUntil returns when the lease ends unless a renewal or Extend is confirmed before, with a monotonic reading. After
// a loss it is the instant of the loss or earlier; after Stop it stays as it was. It is no statement that the lease is
// still valid: see Err.
func (l *Lease[K]) ValidUntil() time.Time {
	return l.w.epoch.Add(l.until())
}

// expire loses a live lease whose end has come and reports whether it did. w.mu is held.
func (w *Watchdog[K]) expire(l *Lease[K], now time.Duration) bool {
	if l.state() != live || now < l.until() {
		return false
	}
	w.lose(l, expired, now)
	return true
}

// lose ends a live lease. w.mu is held: whoever reads the state or the closed channel afterwards, in whatever order,
// finds the other one too. OnLost is started when w.mu is released, thus after both.
func (w *Watchdog[K]) lose(l *Lease[K], why state, now time.Duration) {
	w.drop(l)
	l.status.Store(uint32(why))
	l.setUntil(min(l.until(), now))
	if l.lost != nil {
		close(l.lost)
	}
	if w.onLost != nil {
		w.losses = append(w.losses, l)
	}
}
