package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// report is all that a run found, and the JSON that -json writes. The names are
// stable: a field may be added, none changes its meaning.
type report struct {
	Schema      int           `json:"schema"`      // 1
	OK          bool          `json:"ok"`          // no violation, no lost lock, no error
	Interrupted bool          `json:"interrupted"` // by a signal: the figures are of a part of the run
	Server      server        `json:"server"`
	Host        host          `json:"host"`
	Shapes      []shapeReport `json:"shapes"`
}

// shapeReport is what was found in one shape.
type shapeReport struct {
	Name       string    `json:"name"` // requests, loop or custom
	Verdict    string    `json:"verdict"`
	DurationMS int64     `json:"duration_ms"` // for each strategy
	Rounds     int       `json:"rounds"`      // for each strategy
	Clients    int       `json:"clients"`
	Goroutines int       `json:"goroutines_per_client"`
	WorkMS     float64   `json:"work_ms"`
	PauseMS    float64   `json:"pause_ms"` // the longest one
	PollMS     float64   `json:"poll_ms"`
	Strategies []summary `json:"strategies"`

	shape shape
}

type server struct {
	Kind    string `json:"kind"` // spawned, embedded or given
	Version string `json:"version"`
}

type host struct {
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	Load string `json:"load,omitempty"` // over 1, 5 and 15 minutes, before the run; empty if unknown
}

func thisHost() host {
	h := host{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fields := strings.Fields(string(text))
		h.Load = strings.Join(fields[:min(3, len(fields))], " ")
	}
	return h
}

func shapeReportOf(in shape, cfg config, results []summary) shapeReport {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return shapeReport{
		Name: in.name, Verdict: verdict(results),
		DurationMS: cfg.inShape().Milliseconds(), Rounds: rounds, Clients: in.clients, Goroutines: in.goroutines,
		WorkMS: ms(in.work), PauseMS: ms(in.pause), PollMS: ms(cfg.poll),
		Strategies: results, shape: in,
	}
}

// ok tells whether nothing failed the run.
func ok(results []summary) bool {
	for _, s := range results {
		if len(failuresOf(s)) > 0 {
			return false
		}
	}
	return true
}

// writeJSON writes the report to a file.
func (r *report) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("-json: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a report for everybody
		return fmt.Errorf("-json: %w", err)
	}
	return nil
}
