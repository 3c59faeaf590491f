package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// current returns the latest run, or why it may not be touched.
func (s *Server) current() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.external:
		return nil, fmt.Errorf("redistest: %w", ErrExternal)
	case s.stopped:
		return nil, fmt.Errorf("redistest: %w", ErrStopped)
	}
	return s.proc, nil
}

// Stop ends the server for good and removes its directory. It asks first
// (SIGTERM) and kills after 2 s or when ctx ends; a paused server is woken for
// it. After nil the process and the directory are gone and Log still answers.
// A second call does nothing. For an external server it is ErrExternal.
func (s *Server) Stop(ctx context.Context) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	p, err := s.current()
	if errors.Is(err, ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.terminate(ctx); err != nil {
		return fmt.Errorf("redistest: stop: %w", err)
	}
	log := s.Log()
	s.mu.Lock()
	s.stopped, s.log = true, log
	s.mu.Unlock()
	return os.RemoveAll(s.dir)
}

// Kill ends the process with SIGKILL, as a crash would. After nil it is gone and
// the port refuses connections; Restart brings it back.
func (s *Server) Kill() error {
	p, err := s.current()
	if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("redistest: kill: %w", err)
	}
	return nil
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections
// and bytes for it, and nobody answers. After nil it does nothing until Resume,
// Restart or Stop.
func (s *Server) Pause() error {
	p, err := s.current()
	if err != nil {
		return err
	}
	if !p.running() {
		return errors.New("redistest: pause: the server is not running")
	}
	if err := pause(p); err != nil {
		return fmt.Errorf("redistest: pause: %w", err)
	}
	return nil
}

// Resume lets a paused process go on. For one that runs it does nothing.
func (s *Server) Resume() error {
	p, err := s.current()
	if err != nil {
		return err
	}
	if err := resume(p); err != nil {
		return fmt.Errorf("redistest: resume: %w", err)
	}
	return nil
}

// Restart ends the process, if it still runs, and starts it again on the same
// port. The keys are gone, unless Config.Args made the server persist them.
// After nil the server answers. After an error it does not run, and Restart may
// be tried again.
func (s *Server) Restart(ctx context.Context) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	return s.restart(ctx)
}

// RestartKeepingData is Restart with a SAVE before it, so that the keys are
// there again. The server must be running; when the SAVE fails, nothing has
// been done to it.
func (s *Server) RestartKeepingData(ctx context.Context) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	if _, err := s.current(); err != nil {
		return err
	}
	_, err := os.Stat(s.dumpFile())
	ours := errors.Is(err, os.ErrNotExist)
	if err := s.save(ctx); err != nil {
		return fmt.Errorf("redistest: save: %w", err)
	}
	err = s.restart(ctx)
	if ours { // or the next plain Restart would load it too
		err = errors.Join(err, os.Remove(s.dumpFile()))
	}
	return err
}

func (s *Server) save(ctx context.Context) error {
	c, err := dialRaw(ctx, "unix", s.socket(), s.cfg.Password)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing more is wanted of it
	reply, err := c.do(ctx, "SAVE")
	if err != nil {
		return err
	}
	if reply != "+OK" {
		return errors.New(reply)
	}
	return nil
}

// restart is Restart with ops held. When somebody else has taken the port in
// between, it waits for it to be free again.
func (s *Server) restart(ctx context.Context) error {
	p, err := s.current()
	if err != nil {
		return err
	}
	if err := p.terminate(ctx); err != nil {
		return fmt.Errorf("redistest: restart: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	tick := time.NewTicker(10 * pollEvery)
	defer tick.Stop()
	for {
		err := s.startOnce(ctx)
		if !errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
