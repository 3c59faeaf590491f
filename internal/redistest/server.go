package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// ErrExternal is what the process methods return for the server that EnvAddr
// names: it belongs to somebody else and is neither stopped nor paused.
var ErrExternal = errors.New("the server at " + EnvAddr + " is not ours to stop or pause")

// ErrStopped is what the process methods return after Stop.
var ErrStopped = errors.New("the server was stopped")

// Config says how a server is started. The zero value is a plain server without
// persistence, which is what most tests need.
type Config struct {
	// Args is put at the end of the command line, so it overrides what is set
	// here, for example []string{"--maxclients", "3"}. It must leave port, bind,
	// dir and unixsocket alone.
	Args []string
	// Conf is the text of a configuration file, for what the command line does
	// not accept, such as rename-command.
	Conf string
	// Password is the default user's. Client and the Check functions use it.
	Password string
	// Cluster starts a cluster node, without slots, whose bus port
	// (port + 10000) was free too.
	Cluster bool
	// AcceptLoading makes Start and Restart return while the server still loads
	// its data and answers with LOADING.
	AcceptLoading bool
	// Binary is the program; empty means redis-server.
	Binary string
	// Env is added to the environment of the server, as "name=value".
	Env []string

	// pickPort replaces freePort in tests.
	pickPort func(ctx context.Context, cluster bool) (int, error)
}

// Server is a redis-server process, or the one that EnvAddr names. Its methods
// are safe for concurrent use. The zero value is of no use: take one from Start,
// New or Shared.
type Server struct {
	cfg      Config
	addr     string
	port     int
	path     string // the program
	major    int
	dir      string // empty for an external server
	external bool

	ops sync.Mutex // held by Stop and Restart from beginning to end

	mu      sync.Mutex // guards what follows
	proc    *process   // the latest run
	stopped bool
	log     string // what the log held when Stop removed it
}

// Start starts a server and returns once it answers. Without a redis-server the
// error is ErrNoServer; when the server ended instead of answering, or did not
// answer within readyLimit (10 s) or before ctx ended, the error holds its log.
// After an error nothing is left running. ctx bounds the start alone.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	path, err := findServer(cfg.Binary)
	if err != nil {
		return nil, err
	}
	major, err := majorVersion(ctx, path)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(cfg.Conf)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, path: path, major: major, dir: dir}
	if err := s.startSomewhere(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Addr is where the server listens, as host:port. It stays the same for life.
func (s *Server) Addr() string { return s.addr }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port }

// PID is the process id of the latest run, or 0 for an external server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid()
}

// Running tells whether the process is there, paused or not. It is true for an
// external server.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.external || s.proc.running()
}

// External tells whether the server is the one that EnvAddr names.
func (s *Server) External() bool { return s.external }

// Log returns the end of what the server wrote, over all its runs, at most
// maxLog (64 KiB) of it. It is empty for an external server.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.external || s.stopped {
		return s.log
	}
	text, err := readTail(s.logFile(), 0)
	if err != nil {
		return fmt.Sprintf("redistest: no log: %v", err)
	}
	return text
}

func (s *Server) logFile() string  { return filepath.Join(s.dir, "redis.log") }
func (s *Server) confFile() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) dumpFile() string { return filepath.Join(s.dir, "dump.rdb") }
func (s *Server) socket() string   { return filepath.Join(s.dir, "s") }
