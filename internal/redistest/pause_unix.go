//go:build unix

package redistest

import "syscall"

func pause(p *process) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p)
}

func resume(p *process) error { return p.signal(syscall.SIGCONT) }
