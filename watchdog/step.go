package watchdog

import "time"

// stride is how many leases a step handles before it lets others have the lock.
const stride = 1024

// plan is what one step has collected.
type plan[K any] struct {
	now     time.Duration        // of the whole step
	due     bool                 // something was due by itself, so others may join
	open    map[string]*batch[K] // batches with room, by group
	batches []*batch[K]
}

// step is run by the timer: it ends the leases whose time is up and sends the renewals that are due. It does no I/O.
func (w *Watchdog[K]) step() {
	defer w.leave()
	p, ok := w.beginStep()
	if !ok {
		return
	}
	for w.collect(p) {
	}
	for _, b := range p.batches {
		go w.run(b)
	}
}

// beginStep reports false if another step is at work. That happens when the timer has fired while the lock was held by
// someone who then set it anew; the step at work arms the timer when it has done.
func (w *Watchdog[K]) beginStep() (*plan[K], bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stepping {
		return nil, false
	}
	w.stepping = true
	w.armed = never
	return &plan[K]{now: w.now(), open: map[string]*batch[K]{}}, true
}

// collect handles a stride of the agenda and reports whether there is more to do.
//
// It ends: each lease that it has handled is either lost or to be looked at later than p.now.
func (w *Watchdog[K]) collect(p *plan[K]) (more bool) {
	w.mu.Lock()
	defer w.unlock()
	for range stride {
		if !w.anyDue(p) {
			w.stepping = false
			return false
		}
		w.handle(w.agenda[0], p)
	}
	return true
}

// anyDue reports whether the first of the agenda is due, or may join those that were. Because the agenda is ordered by
// due time alone, a lease with a short interval can hide a later one that might join: that one then waits for its turn.
func (w *Watchdog[K]) anyDue(p *plan[K]) bool {
	if len(w.agenda) == 0 {
		return false
	}
	first := w.agenda[0]
	p.due = p.due || first.at <= p.now
	return p.due && first.at-first.slack <= p.now
}

// handle does what l needs at p.now. w.mu is held.
func (w *Watchdog[K]) handle(l *Lease[K], p *plan[K]) {
	switch {
	case w.expire(l, p.now):
	case l.batch == nil:
		w.put(l, p)
	case p.now < l.batch.sent+w.patience(l): // the batch was sent a little after it was put together, or Extend moved the end
		w.schedule(l, l.batch.sent+w.patience(l), 0)
	default:
		l.batch = nil // left behind
		w.scheduleRetry(l, p.now)
	}
}

// put adds l to a batch of its group. w.mu is held.
func (w *Watchdog[K]) put(l *Lease[K], p *plan[K]) {
	b := p.open[l.group]
	if b == nil {
		b = &batch[K]{group: l.group, sent: p.now}
		p.open[l.group] = b
		p.batches = append(p.batches, b)
		w.running++ // its goroutine, which step starts
	}
	b.leases = append(b.leases, l)
	if len(b.leases) == w.batchSize {
		delete(p.open, l.group)
	}
	l.batch = b
	w.schedule(l, p.now+w.patience(l), 0)
}

// unlock ends a critical section that may have changed the agenda: it sets the timer accordingly and has the losses told.
func (w *Watchdog[K]) unlock() {
	if len(w.losses) > 0 {
		w.running++
		go w.tell(w.losses)
		w.losses = nil
	}
	w.arm()
	w.mu.Unlock()
}

// arm makes sure that the timer fires no later than the agenda needs it and not at all when the agenda is empty. It does
// not move the timer to a later instant: a step that finds nothing to do is cheaper than a reset for each Stop.
// w.mu is held.
//
// running counts every activation of the timer once. The result of Reset and Stop tells whether an activation that has
// not yet started its step was replaced or taken back; each of the others ends in a step, which leaves by itself.
func (w *Watchdog[K]) arm() {
	if len(w.agenda) == 0 {
		w.armed = never
		if w.timer != nil && w.timer.Stop() {
			w.leaveLocked()
		}
		return
	}
	next := w.agenda[0].at
	if w.stepping || next >= w.armed {
		return
	}
	w.armed = next
	wait := next - w.now()
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(wait, w.step)
		w.running++
	case !w.timer.Reset(wait):
		w.running++
	}
}

// tell calls onLost for each of losses.
func (w *Watchdog[K]) tell(losses []*Lease[K]) {
	defer w.leave()
	for _, l := range losses {
		w.onLost(l.key, l.state().err())
	}
}

// leave is the last act of a goroutine that running counts.
func (w *Watchdog[K]) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveLocked()
}

func (w *Watchdog[K]) leaveLocked() {
	w.running--
	if w.running == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}
