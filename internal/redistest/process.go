package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	termGrace = 2 * time.Second // what a server gets to obey SIGTERM
	killGrace = 5 * time.Second // what the kernel gets to end a killed process
)

// process is one run of a program. Its supervising goroutine ends with it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the program has been waited for
	err    error         // what Wait said; to be read after exited is closed
}

// launch starts cmd and a goroutine that waits for it.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.supervise(started)
	if err := <-started; err != nil {
		<-p.exited
		return nil, err
	}
	return p, nil
}

// supervise starts the program and waits for its end, on one OS thread: the
// parent-death signal is sent when the thread that forked ends, not when the
// process does, so that thread is kept for as long as the child lives.
func (p *process) supervise(started chan<- error) {
	defer close(p.exited)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// signal sends sig; a process that has ended is not an error.
func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// terminate asks the process to end and kills it when it has not done so
// within termGrace or before ctx ends. A paused process is woken first.
func (p *process) terminate(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	if err := errors.Join(p.signal(syscall.SIGTERM), resume(p)); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
	case <-time.After(termGrace):
	}
	return p.kill()
}

// kill ends the process at once and waits until the kernel has done it.
func (p *process) kill() error {
	if err := p.signal(os.Kill); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(killGrace):
		return errors.New("the process is still there after SIGKILL")
	}
}
