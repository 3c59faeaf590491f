package watchdog

// TakeTimer stops the timer and reports whether it was armed. The watchdog is of no use after that.
func (w *Watchdog[K]) TakeTimer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timer != nil && w.timer.Stop()
}

// StallTimer lets no timer fire until resume is called, as a stopped process would.
func (w *Watchdog[K]) StallTimer() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepping = true
	w.armed = never
	if w.timer != nil && w.timer.Stop() {
		w.leaveLocked()
	}
	return func() {
		w.mu.Lock()
		defer w.unlock()
		w.stepping = false
	}
}

// PutTogether does what a step does before it starts the goroutines of its batches, and returns the rest of the step.
func (w *Watchdog[K]) PutTogether() (run func()) {
	p, ok := w.beginStep()
	if !ok {
		panic("a step is at work")
	}
	for w.collect(p) {
	}
	return func() {
		for _, b := range p.batches {
			w.run(b)
		}
	}
}
