//go:build unix

package redistest_test

import (
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// A terminal sends the signal of Ctrl-C to every process of its foreground group.
func TestServerIsInAProcessGroupOfItsOwn(t *testing.T) {
	needsServer(t)
	ctx, cancel := startBound(t)
	defer cancel()
	s, err := redistest.Start(ctx, redistest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(ctx) }()
	group, err := syscall.Getpgid(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if ours := syscall.Getpgrp(); group == ours {
		t.Errorf("the server is in our process group %d", ours)
	}
}
