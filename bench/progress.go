package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// redrawEvery is slow enough to cost nothing and fast enough to look alive.
const redrawEvery = 200 * time.Millisecond

// progress shows one line with the time left. It is silent without a terminal.
// One goroutine uses it.
type progress struct {
	out  io.Writer // nil: silent
	what string
	left time.Duration // when the present round is over
}

// expect sets how long all rounds take together.
func (p *progress) expect(all time.Duration) { p.left = all }

// begin announces a round.
func (p *progress) begin(what string, length time.Duration) {
	p.what = what
	p.left -= length
}

// follow waits for length or until ctx ends, redrawing the line.
func (p *progress) follow(ctx context.Context, length time.Duration) {
	end := time.NewTimer(length)
	defer end.Stop()
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	began := time.Now()
	for {
		p.draw(length - time.Since(began))
		select {
		case <-end.C:
			return
		case <-ctx.Done():
			return
		case <-redraw.C:
		}
	}
}

func (p *progress) draw(ofRound time.Duration) {
	if p.out == nil {
		return
	}
	seconds := int((p.left + max(ofRound, 0) + time.Second - 1) / time.Second)
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s  %d s left", p.what, seconds)
}

// done wipes the line.
func (p *progress) done() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
