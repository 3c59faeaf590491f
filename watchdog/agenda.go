package watchdog

import (
	"container/heap"
	"time"
)

// agenda is the heap of the live leases: the one to look at next comes first.
type agenda[K any] []*Lease[K]

// roomy is the capacity from which an empty agenda gives its memory back.
const roomy = 1024

func (a agenda[K]) Len() int           { return len(a) }
func (a agenda[K]) Less(i, j int) bool { return a[i].at < a[j].at }

func (a agenda[K]) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push is called by package heap.
func (a *agenda[K]) Push(x any) {
	l := x.(*Lease[K])
	l.index = len(*a)
	*a = append(*a, l)
}

// Pop is called by package heap.
func (a *agenda[K]) Pop() any {
	last := len(*a) - 1
	l := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	l.index = absent
	if last == 0 && cap(*a) > roomy {
		*a = nil
	}
	return l
}

// drop takes l out of the agenda. A batch that waits for l no longer counts. w.mu is held.
func (w *Watchdog[K]) drop(l *Lease[K]) {
	l.batch = nil
	if l.index != absent {
		heap.Remove(&w.agenda, l.index)
	}
}

// schedule has the agenda look at l at the instant at, or slack before that to join others; in any case at its end.
// w.mu is held.
func (w *Watchdog[K]) schedule(l *Lease[K], at, slack time.Duration) {
	if until := l.until(); at >= until {
		at, slack = until, 0
	}
	l.at, l.slack = at, slack
	heap.Fix(&w.agenda, l.index)
}

// scheduleRenewal makes the next renewal due one interval after sent. w.mu is held.
func (w *Watchdog[K]) scheduleRenewal(l *Lease[K], sent time.Duration) {
	l.tries = 0
	interval := w.interval(l)
	w.schedule(l, add(sent, interval), interval/joinFraction)
}

// scheduleRetry makes the next attempt due after a pause that grows, but before the end of the lease as long as there
// is time for one. w.mu is held.
func (w *Watchdog[K]) scheduleRetry(l *Lease[K], now time.Duration) {
	interval := w.interval(l)
	pause := min(interval/firstRetryFraction<<l.tries, interval/lastRetryFraction)
	if pause < interval/lastRetryFraction {
		l.tries++
	}
	pause = min(pause, (l.until()-now)/2)
	if pause < interval/shortestRetryFraction {
		w.schedule(l, l.until(), 0)
		return
	}
	w.schedule(l, now+pause, pause/joinFraction)
}

// The parts of an interval (of a pause, for joinFraction of a retry) that the package comment states.
const (
	joinFraction          = 8
	answerFraction        = 2
	firstRetryFraction    = 16
	lastRetryFraction     = 4
	shortestRetryFraction = 64
)

// shortestInterval keeps the scheduler from spinning for leases that no server can time.
const shortestInterval = time.Millisecond

// interval is the time from one renewal of l to the next.
func (w *Watchdog[K]) interval(l *Lease[K]) time.Duration {
	return max(time.Duration(float64(l.lease)/w.perLease), shortestInterval)
}

// patience is how long an answer for l is waited for.
func (w *Watchdog[K]) patience(l *Lease[K]) time.Duration {
	return w.interval(l) / answerFraction
}
