package watchdog_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/watchdog"
)

func TestPanicInRenewCrashes(t *testing.T) {
	const marker = "WATCHDOG_TEST_PANIC"
	if os.Getenv(marker) != "" {
		w, err := watchdog.New(func(context.Context, string, []string) []watchdog.Outcome { panic("renew is broken") }, watchdog.Options[string]{})
		if err != nil {
			t.Fatal(err)
		}
		<-w.Keep("k", "g", time.Hour, time.Now().Add(-30*time.Minute)).Lost()
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicInRenewCrashes$", "-test.timeout=30s")
	command.Env = append(os.Environ(), marker+"=1")
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: renew is broken") {
		t.Errorf("the program ended with %v and printed %q; want the panic of renew", err, out)
	}
}
