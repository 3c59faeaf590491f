//go:build unix && scenarios

package scenarios_test

import "syscall"

// pause stops the process with SIGSTOP. On return it may still have a moment to
// run: the kernel stops it when it is next scheduled.
func (p *process) pause() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
}

// resume lets a paused process go on.
func (p *process) resume() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}
