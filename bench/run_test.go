package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/embedded"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestQuickRunOnEmbedded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	got := play(t.Context(), t, nil, "-redis", "embedded", "-quick", "-duration", "600ms", "-json", file)
	if got.code != exitOK {
		t.Fatalf("exit code %d, stderr:\n%s\nstdout:\n%s", got.code, got.stderr, got.stdout)
	}
	if !strings.HasPrefix(got.stdout, "VERDICT  requests: Latchkey made ") {
		t.Errorf("does not begin with the verdict:\n%s", got.stdout)
	}
	for _, want := range []string{
		"\nVERDICT  loop: Latchkey made ", "absolute figures mean little",
		"\nREQUESTS: ", "\nLOOP: ", "\npolling ", "\nlatchkey ", "violations",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	if got.stderr != "" {
		t.Errorf("without a terminal stderr is not quiet: %q", got.stderr)
	}
	for line := range strings.Lines(got.stdout) {
		if len(strings.TrimSpace(line)) > width {
			t.Errorf("wider than %d columns: %s", width, line)
		}
	}
	checkJSON(t, file)
}

// checkJSON looks for the names that readers of the file rely on.
func checkJSON(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Schema int
		OK     bool
		Server struct{ Kind string }
		Shapes []struct {
			Name       string
			Verdict    string
			PauseMS    float64 `json:"pause_ms"`
			Strategies []map[string]any
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if all.Schema != 1 || !all.OK || all.Server.Kind != "embedded" || len(all.Shapes) != 2 {
		t.Fatalf("unexpected: %+v", all)
	}
	for i, want := range []struct {
		name    string
		pauseMS float64
	}{{"requests", 10}, {"loop", 0}} {
		in := all.Shapes[i]
		if in.Name != want.name || in.PauseMS != want.pauseMS || in.Verdict == "" || len(in.Strategies) != 2 {
			t.Errorf("unexpected: %+v", in)
		}
		checkStrategies(t, in.Strategies)
	}
}

func checkStrategies(t *testing.T, all []map[string]any) {
	t.Helper()
	for _, s := range all {
		for _, name := range []string{
			"name", "turns", "turns_per_second", "round_turns_per_second", "wait_ms", "commands", "fairness",
			"retakes", "violations", "lost_locks",
		} {
			if _, there := s[name]; !there {
				t.Errorf("%v: no field %q", s["name"], name)
			}
		}
		if s["turns"].(float64) <= 0 {
			t.Errorf("%v made no turn", s["name"])
		}
	}
}

func TestForeignServerIsLeftAsItWas(t *testing.T) {
	url, rdb := startServer(t)
	if err := rdb.Set(t.Context(), "somebody's", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := play(t.Context(), t, nil, "-redis", url, "-quick", "-duration", "100ms")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	if keys := keysIn(t, rdb); len(keys) != 1 || keys[0] != "somebody's" {
		t.Errorf("keys after the run: %q", keys)
	}
}

func TestPrefixInUseIsRefused(t *testing.T) {
	url, rdb := startServer(t)
	stdout, stderr := newSignalWriter(), newSignalWriter()
	p := program{stdout: stdout, stderr: stderr, strategies: allStrategies(), prefix: redistest.Prefix(t)}
	theirs := p.prefix + "theirs"
	if err := rdb.Set(t.Context(), theirs, "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if code := p.run(t.Context(), []string{"-redis", url, "-quick"}); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if !strings.Contains(stderr.String(), errPrefixInUse.Error()) {
		t.Errorf("stderr: %q", stderr)
	}
	if keys := keysIn(t, rdb); len(keys) != 1 || keys[0] != theirs {
		t.Errorf("keys after the run: %q", keys)
	}
}

func TestUnreachableServerFails(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	server.Close() // nobody listens there any more
	got := play(t.Context(), t, nil, "-redis", "redis://user:secret@"+server.Addr(), "-quick")
	if got.code != exitFailed || !strings.Contains(got.stderr, "does not answer") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	if strings.Contains(got.stdout+got.stderr, "secret") {
		t.Error("the password is shown")
	}
}

// An interrupt while strategies compete, as main makes of SIGINT and SIGTERM.
func TestInterrupt(t *testing.T) {
	url, rdb := startServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout, progress := newSignalWriter(), newSignalWriter()
	p := program{
		stdout: stdout, stderr: progress, terminal: true,
		strategies: allStrategies(), prefix: redistest.Prefix(t),
	}
	go func() {
		<-progress.wrote // the first round has begun
		interrupt()
	}()
	if code := p.run(ctx, []string{"-redis", url, "-duration", "10m"}); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; %s", code, exitInterrupted, progress)
	}
	if !strings.HasPrefix(stdout.String(), "INTERRUPTED") || !strings.Contains(stdout.String(), "\npolling ") {
		t.Errorf("neither note nor table:\n%s", stdout)
	}
	if keys := keysIn(t, rdb); len(keys) != 0 {
		t.Errorf("keys left: %q", keys)
	}
}

func TestInterruptBeforeTheServerIsThere(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if got := play(ctx, t, nil, "-redis", "embedded"); got.code != exitInterrupted {
		t.Errorf("exit code %d, want %d", got.code, exitInterrupted)
	}
}

func TestListNeedsNoServer(t *testing.T) {
	got := play(t.Context(), t, nil, "-list")
	if got.code != exitOK {
		t.Errorf("exit code %d", got.code)
	}
	for _, name := range []string{"polling", "latchkey", "requests", "loop"} {
		if !strings.Contains(got.stdout, "\n  "+name+" ") {
			t.Errorf("no %s in:\n%s", name, got.stdout)
		}
	}
}
