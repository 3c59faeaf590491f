package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// width is what the report is written for.
const width = 100

// write writes the verdicts, where and what was measured, a table for each shape
// and what its columns mean.
func (r *report) write(out io.Writer) {
	if r.Interrupted {
		writef(out, "INTERRUPTED, so these are the figures of a part of the run.\n")
	}
	for _, s := range r.Shapes {
		writef(out, "%s\n", wrap("VERDICT  ", s.Name+": "+s.Verdict))
	}
	writef(out, "\n")
	r.writePlace(out)
	for _, s := range r.Shapes {
		s.write(out)
	}
	writef(out, "\n%s", legend)
}

// writePlace writes where it was measured.
func (r *report) writePlace(out io.Writer) {
	load := r.Host.Load
	if load == "" {
		load = "unknown"
	}
	writef(out, "Server   %s, %s\n", r.Server.Version, serverKinds[r.Server.Kind])
	if r.Server.Kind == "embedded" {
		writef(out, "         On the embedded server absolute figures mean little: it shares this process.\n")
	}
	writef(out, "Machine  %d CPUs, %s, load at the start %s\n", r.Host.CPUs, r.Host.Go, load)
}

var serverKinds = map[string]string{
	"spawned":  "started for this run (spawn)",
	"embedded": "inside this process (embedded)",
	"given":    "given by URL",
}

// write writes the table of one shape.
func (s shapeReport) write(out io.Writer) {
	writef(out, "\n%s: %s\n", strings.ToUpper(s.Name), s.shape.about)
	writef(out, "%s\n", s.shape.load())
	writef(out, "%v for each strategy in %d rounds, in turn; polling every %g ms\n\n",
		time.Duration(s.DurationMS)*time.Millisecond, s.Rounds, s.PollMS)
	writef(out, "%-10s %8s %9s %9s %9s %10s %10s %6s %11s %5s\n",
		"strategy", "turns/s", "wait p50", "p99", "max", "cmds/turn", "slow:fast", "Jain", "violations", "lost")
	for _, s := range s.Strategies {
		writef(out, "%-10s %8.0f %9s %9s %9s %10.2f %10.2f %6.2f %11d %5d\n",
			s.Name, s.TurnsPerSecond, milliseconds(s.Waits.P50), milliseconds(s.Waits.P99), milliseconds(s.Waits.Max),
			s.Commands.PerTurn, s.Fairness.SlowestToFastest, s.Fairness.Jain,
			s.Violations.Overlaps+s.Violations.LostUpdates, s.LostLocks)
	}
	if why := whyPollingLeads(s.Strategies); why != "" {
		writef(out, "%s\n", why)
	}
}

const legend = `wait        from asking for the lock to having it; one that a round's end cut off counts so far
cmds/turn   what all connections sent, counted on the wire: a script is one, SUBSCRIBE and PING
            count too, HELLO and the like do not
slow:fast   turns of the slowest goroutine / of the fastest; Jain's index: 1 = all had the same
violations  critical sections that overlapped + lost updates of an unsynchronised counter
lost        locks that were gone when their holder released them
`

// wrap breaks the text between words. The first line begins with label, the
// others with as much room.
func wrap(label, text string) string {
	var b strings.Builder
	b.WriteString(label)
	column := len(label)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + strings.Repeat(" ", len(label)))
			column = len(label)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// writef writes to the user's terminal or pipe; nobody is left to tell when that
// fails.
func writef(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...)
}
