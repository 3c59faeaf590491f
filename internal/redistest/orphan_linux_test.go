package redistest_test

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestServerDiesWithItsParent kills a process that has started a server.
func TestServerDiesWithItsParent(t *testing.T) {
	needsServer(t)
	cmd := role(t.Context(), "orphan")
	// The killed process cannot remove the server's directory; ours is removed.
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _ := strings.Cut(line, " ")
	if !answers(t.Context(), addr) {
		t.Fatalf("no server on %q", addr)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	redistest.Eventually(t, 10*time.Second, func() bool { return !answers(t.Context(), addr) }, "%s still answers", addr)
}
