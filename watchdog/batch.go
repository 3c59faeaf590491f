package watchdog

import "time"

// batch is one call of renew.
type batch[K any] struct {
	group  string
	leases []*Lease[K]
	sent   time.Duration // before start: when the batch was put together
}

// run makes the call. A panic in renew passes through and ends the program.
func (w *Watchdog[K]) run(b *batch[K]) {
	defer w.leave()
	keys, patience := w.start(b)
	if len(keys) == 0 {
		return
	}
	ctx, cancel := w.context(w.epoch.Add(b.sent + patience))
	defer cancel()
	w.finish(b, w.renew(ctx, b.group, keys))
}

// start fixes which leases the call is for and takes its send time, both with w.mu held: a Stop that has returned before
// is seen here, and what is seen here was not stopped before the send time.
func (w *Watchdog[K]) start(b *batch[K]) (keys []K, patience time.Duration) {
	w.mu.Lock()
	defer w.unlock()
	b.sent = w.now()
	put := b.leases
	b.leases = put[:0]
	keys = make([]K, 0, len(put))
	patience = never
	for _, l := range put {
		// A lease whose batch is another one was stopped, lost or given up since it was put here.
		if l.batch != b || w.expire(l, b.sent) {
			continue
		}
		b.leases = append(b.leases, l)
		keys = append(keys, l.key)
		patience = min(patience, w.patience(l))
	}
	clear(put[len(b.leases):])
	return keys, patience
}

// finish takes in the answer, perhaps of a call that was left behind.
func (w *Watchdog[K]) finish(b *batch[K], outcomes []Outcome) {
	w.mu.Lock()
	defer w.unlock()
	now := w.now()
	for i, l := range b.leases {
		outcome := Unknown
		if i < len(outcomes) {
			outcome = outcomes[i]
		}
		w.settle(l, b, outcome, now)
	}
}

// settle applies one outcome. w.mu is held.
func (w *Watchdog[K]) settle(l *Lease[K], b *batch[K], outcome Outcome, now time.Duration) {
	if l.state() != live || w.expire(l, now) {
		return
	}
	switch outcome {
	case Gone:
		w.lose(l, gone, now)
	case Renewed:
		l.raise(add(b.sent, l.lease))
		if l.batch == b || l.batch == nil { // else a later call is on its way and decides when the next is due
			l.batch = nil
			w.scheduleRenewal(l, b.sent)
		}
	default:
		if l.batch == b {
			l.batch = nil
			w.scheduleRetry(l, now)
		}
	}
}
