package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	maxLog     = 64 << 10
	readyLimit = 10 * time.Second
	pollEvery  = 5 * time.Millisecond
	clashTries = 20
	// maxTemp leaves room for the name of the socket: systems refuse a socket
	// whose path is longer than about 100 bytes.
	maxTemp = 60
)

// errPortTaken means that somebody else had the port first.
var errPortTaken = errors.New("the port was taken meanwhile")

// makeDir makes the directory of a server and writes its configuration file.
func makeDir(conf string) (string, error) {
	parent := os.TempDir()
	if len(parent) > maxTemp {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "latchkey-redis-")
	if err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(conf), 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("redistest: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// startSomewhere starts the server on a free port; when another process was
// quicker to take it, on the next one.
func (s *Server) startSomewhere(ctx context.Context) error {
	pick := s.cfg.pickPort
	if pick == nil {
		pick = freePort
	}
	var err error
	for range clashTries {
		if s.port, err = pick(ctx, s.cfg.Cluster); err != nil {
			return err
		}
		s.addr = loopback(s.port)
		if err = s.startOnce(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// startOnce runs the server on s.port and waits until it is ready. After an
// error the process is gone.
func (s *Server) startOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has a copy; nothing is written here
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	proc, err := launch(s.command(log))
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if err := s.awaitReady(ctx, proc); err != nil {
		return s.startError(err, proc, before)
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	return nil
}

// startError ends the process and says, with its log, why it did not start.
func (s *Server) startError(err error, proc *process, logFrom int64) error {
	killed := proc.kill()
	log, logErr := readTail(s.logFile(), logFrom)
	if strings.Contains(log, "Address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("redistest: start of %s on %s: %w\n%s", s.path, s.addr, errors.Join(err, killed, logErr), log)
}

func (s *Server) command(log *os.File) *exec.Cmd {
	cmd := exec.Command(s.path, s.args()...) //nolint:noctx // it outlives the ctx of Start; Stop ends it
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.cfg.Env...)
	cmd.SysProcAttr = procAttr()
	return cmd
}

func (s *Server) args() []string {
	args := []string{
		s.confFile(),
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--unixsocket", s.socket(),
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	if s.major >= 7 { // older servers have DEBUG switched on and do not know the option
		args = append(args, "--enable-debug-command", "yes")
	}
	if s.cfg.Password != "" {
		args = append(args, "--requirepass", s.cfg.Password)
	}
	if s.cfg.Cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	return append(args, s.cfg.Args...)
}

// awaitReady polls until the server answers. It asks through the server's own
// socket, not its port: on the port another server could answer, and this one
// opens the socket only after it has the port.
func (s *Server) awaitReady(ctx context.Context, proc *process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ready, err := s.answers(ctx)
		if ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-proc.exited:
			return fmt.Errorf("the server ended: %w", errors.Join(proc.err, err))
		case <-ctx.Done():
			return fmt.Errorf("no answer in time: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// answers tells whether the server replies to PING. A refusal such as NOAUTH is
// a reply too; LOADING is one only when the configuration says so.
func (s *Server) answers(ctx context.Context) (bool, error) {
	c, err := dialRaw(ctx, "unix", s.socket(), "")
	if err != nil {
		return false, err
	}
	defer c.Close() //nolint:errcheck // nothing more is wanted of it
	reply, err := c.do(ctx, "PING")
	if err != nil {
		return false, err
	}
	if strings.HasPrefix(reply, "-LOADING") && !s.cfg.AcceptLoading {
		return false, errors.New(reply)
	}
	return true, nil
}

// readTail returns what the file holds from an offset on, at most maxLog bytes
// of its end.
func readTail(name string, from int64) (string, error) {
	f, err := os.Open(name) //nolint:gosec // a file in the server's own directory
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	from = max(from, size-maxLog)
	text, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	return string(text), err
}

// splitAddr takes the address that EnvAddr holds apart.
func splitAddr(addr string) (port int, err error) {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(p)
}
