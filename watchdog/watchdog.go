package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Why a lease was lost: what [Lease.Err] returns and OnLost receives. They are returned as they are, not wrapped.
var (
	// ErrGone says that a renewal was answered with [Gone]: the server no longer has the lease.
	ErrGone = errors.New("watchdog: the lease is gone")
	// ErrExpired says that the lease ran out by the local clock without a confirmed renewal. The server may keep it a
	// little longer.
	ErrExpired = errors.New("watchdog: the lease has run out without a confirmed renewal")
	// ErrClosed says that the watchdog was closed. The server keeps the lease until it runs out there.
	ErrClosed = errors.New("watchdog: closed")
)

// Outcome is what a renewal knows about one key. The zero value is Unknown.
type Outcome int8

const (
	// Unknown says that nothing is known about the key: no answer, or an error that may pass. The lease is as valid as it
	// was before, and is tried again before it ends.
	Unknown Outcome = iota
	// Renewed says that the server has extended the lease by its full duration, counted from no earlier than the send.
	Renewed
	// Gone says that the server no longer has the lease, or will never renew it.
	Gone
)

// Options sets up a [Watchdog]. The zero value is valid.
type Options[K any] struct {
	// RenewalsPerLease sets the renewal interval of each lease: lease / RenewalsPerLease. 0 means 3. At least 2, so that
	// a renewal can be tried again before the lease ends.
	RenewalsPerLease float64

	// BatchSize is the greatest number of keys in one call of renew. 0 means 100.
	BatchSize int

	// OnLost, if set, is called once for each lost lease, with ErrGone, ErrExpired or ErrClosed, and never for a lease
	// that was stopped while it was valid. Lost is closed and Err returns the error before the call begins. It runs in a
	// short-lived goroutine that holds no lock of the watchdog, never in the goroutine that calls a method, so it may take
	// any lock and call any method except Wait; calls for different leases may run at once. For a lease that was lost in
	// Keep it may run before Keep has returned. It must not block.
	OnLost func(key K, err error)
}

// Watchdog keeps leases alive. All methods are safe for concurrent use. The zero value is not usable: see [New].
type Watchdog[K any] struct {
	renew     func(ctx context.Context, group string, keys []K) []Outcome
	onLost    func(key K, err error)
	perLease  float64
	batchSize int

	// epoch is when the watchdog was made. An instant is held as the time since epoch: 8 bytes instead of 24, and always
	// on the monotonic clock.
	epoch   time.Time
	context func(deadline time.Time) (context.Context, context.CancelFunc) // for a call of renew: ends with Close
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	agenda   agenda[K]     // every live lease, at all times
	timer    *time.Timer   // runs step; nil before the first lease
	armed    time.Duration // when the timer fires; never if that is of no use to anybody
	stepping bool          // a step is collecting and will arm the timer when it has done so
	closed   bool
	losses   []*Lease[K]   // lost in the present critical section, not yet told to onLost
	running  int           // goroutines of the watchdog, an armed timer included
	idle     chan struct{} // closed when running falls to 0; nil when nobody waits for that
}

// never is an instant that does not come.
const never = time.Duration(math.MaxInt64)

// New returns a watchdog that renews leases by calling renew. It starts nothing.
//
// renew gets at most Options.BatchSize keys of one group and returns what it knows about each, in the order of keys;
// missing outcomes are [Unknown], as is a value that is no Outcome. A key that is kept twice may stand in keys twice. The
// slice belongs to renew. Calls run concurrently, for one group too. ctx has a deadline (see the package comment) and ends
// with Close, with ErrClosed as its cause; renew should return soon after that, because each call that does not keeps its
// goroutine until it does. renew may call any method of the watchdog and of its leases, except Wait. A panic in renew
// is not recovered.
//
// New returns an error, which names the field, if renew is nil or a field of o is out of range.
func New[K any](renew func(ctx context.Context, group string, keys []K) []Outcome, o Options[K]) (*Watchdog[K], error) {
	if renew == nil {
		return nil, errors.New("watchdog: renew is nil: give New the function that renews a batch of keys")
	}
	if o.RenewalsPerLease == 0 {
		o.RenewalsPerLease = 3
	}
	if o.BatchSize == 0 {
		o.BatchSize = 100
	}
	if !(o.RenewalsPerLease >= 2) || math.IsInf(o.RenewalsPerLease, 1) { // the negation also catches NaN
		return nil, fmt.Errorf("watchdog: Options.RenewalsPerLease is %v: set a finite number of at least 2, or 0 for 3", o.RenewalsPerLease)
	}
	if o.BatchSize < 0 {
		return nil, fmt.Errorf("watchdog: Options.BatchSize is %d: set at least 1, or 0 for 100", o.BatchSize)
	}
	base, cancel := context.WithCancelCause(context.Background())
	return &Watchdog[K]{
		renew:     renew,
		onLost:    o.OnLost,
		perLease:  o.RenewalsPerLease,
		batchSize: o.BatchSize,
		epoch:     time.Now(),
		context: func(deadline time.Time) (context.Context, context.CancelFunc) {
			return context.WithDeadline(base, deadline)
		},
		cancel: cancel,
		armed:  never,
	}, nil
}

// Keep takes over a lease that the server has granted for key: it is renewed until it is stopped or lost. group says
// whose batches it may share. lease is the duration that the grant has and that each renewal gives it anew.
//
// sent is a reading of [time.Now] taken before the command that granted the lease was sent: the lease is valid until
// sent+lease, and its first renewal is due one interval after sent. A sent that lies in the future counts as now. A sent
// without a monotonic reading (see package time) ties the first validity to the wall clock.
//
// The result is never nil. It is a lost lease if sent+lease has passed already (ErrExpired; this is so for each lease of
// 0 or less) or if the watchdog is closed (ErrClosed). Leases are independent of each other, those of an equal key too.
func (w *Watchdog[K]) Keep(key K, group string, lease time.Duration, sent time.Time) *Lease[K] {
	l := &Lease[K]{w: w, key: key, group: group, lease: lease, index: absent}
	w.mu.Lock()
	defer w.unlock()
	now := w.now()
	from := w.instant(sent, now)
	l.setUntil(add(from, lease))
	switch {
	case w.closed:
		w.lose(l, closed, now)
	case lease <= 0 || l.until() <= now:
		w.lose(l, expired, now)
	default:
		l.at = l.until()
		heap.Push(&w.agenda, l)
		w.scheduleRenewal(l, from)
	}
	return l
}

// Close ends the watchdog: every kept lease is lost, with ErrClosed, or with ErrExpired if it had run out before, and the
// contexts of running calls of renew end. From its return on no batch starts (see [Lease.Stop] for what that means). It
// waits for nothing: see [Watchdog.Wait]. It always returns nil; further calls change nothing.
func (w *Watchdog[K]) Close() error {
	w.loseAll()
	w.cancel(ErrClosed)
	return nil
}

func (w *Watchdog[K]) loseAll() {
	w.mu.Lock()
	defer w.unlock()
	w.closed = true
	leases, now := w.agenda, w.now()
	w.agenda = nil
	for _, l := range leases {
		l.index = absent
		if !w.expire(l, now) {
			w.lose(l, closed, now)
		}
	}
}

// Wait returns nil once the watchdog is idle: no lease is kept, no timer is armed, and no call of renew or OnLost is
// running. After Close that says that the last goroutine is at its end. It returns [context.Cause] of ctx if ctx
// ends before. Wait neither stops nor closes anything.
func (w *Watchdog[K]) Wait(ctx context.Context) error {
	w.mu.Lock()
	if w.running == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// now returns the present instant by the monotonic clock.
func (w *Watchdog[K]) now() time.Duration { return time.Since(w.epoch) }

// instant converts a send time of the caller, which cannot lie in the future.
func (w *Watchdog[K]) instant(sent time.Time, now time.Duration) time.Duration {
	return min(sent.Sub(w.epoch), now)
}

// add returns t+d without overflow for d > 0.
func add(t, d time.Duration) time.Duration {
	if t > never-max(d, 0) {
		return never
	}
	return t + d
}
