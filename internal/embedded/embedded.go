package embedded

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Server is a running miniredis. Its methods are safe for concurrent use. The
// zero value is of no use: take one from Start or NewInBubble.
type Server struct {
	mini *miniredis.Miniredis
	addr string

	mu      sync.Mutex // guards what follows
	clients []*redis.Client
	closed  bool
}

// Start starts a server on a free loopback port. After an error nothing runs.
// Use it outside testing/synctest bubbles: a goroutine that waits for a socket
// keeps the clock of a bubble from moving.
func Start() (*Server, error) {
	m := newMini()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	return &Server{mini: m, addr: m.Addr()}, nil
}

// NewInBubble makes a server that listens nowhere and is reached through Dial
// and Client. Called inside a testing/synctest bubble, it goes by the bubble's
// clock: a key set with PX 30000 is there until the fake time has moved by 30 s
// and gone at that instant. Close must be called inside the same bubble.
func NewInBubble() *Server { return &Server{mini: newMini()} }

func newMini() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return m
}

// Addr is where the server listens, as host:port, or "" when it listens nowhere.
// It stays the same after Close.
func (s *Server) Addr() string { return s.addr }

// Dial connects to the server through a pipe in memory. After Close it is an
// error.
func (s *Server) Dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // miniredis would start anew
		return nil, fmt.Errorf("embedded: dial: %w", net.ErrClosed)
	}
	c, err := s.mini.Dial()
	if err != nil {
		return nil, fmt.Errorf("embedded: dial: %w", err)
	}
	return c, nil
}

// Client returns a go-redis client that connects through Dial. The hooks change
// its options first. Close closes it; closing it earlier is fine. After Close the
// client is closed already.
func (s *Server) Client(hooks ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		// A literal address, since a look-up of a name would leave the bubble.
		Addr:            "127.0.0.1:0",
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return s.Dial() },
		DisableIdentity: true, // miniredis does not know CLIENT SETINFO
	}
	for _, h := range hooks {
		h(opts)
	}
	c := redis.NewClient(opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close() // it has no connection that could fail to close
		return c
	}
	s.clients = append(s.clients, c)
	return c
}

// Close closes the clients and stops the server. When it has returned no
// goroutine of either is left and the keys are gone. A second call does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	clients := s.clients
	s.clients, s.closed = nil, true
	s.mu.Unlock()
	for _, c := range clients {
		_ = c.Close() // only a client that was closed before gives an error
	}
	s.mini.Close()
}
