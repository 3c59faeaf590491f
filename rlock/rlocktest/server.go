package rlocktest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// server is a miniredis that is reached through pipes: a goroutine that waits
// for a socket would keep the clock of a bubble from moving.
type server struct {
	mini *miniredis.Miniredis

	mu     sync.Mutex
	closed bool
}

func newServer() *server {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire by the clock, which miniredis leaves to the test otherwise
	return &server{mini: m}
}

// start shows every command to see before it is executed, those within scripts
// included. No command is sent before start has returned.
func (s *server) start(see func(command string, args []string)) error {
	c, err := s.dial() // miniredis takes a hook only when it has a connection
	if err != nil {
		return err
	}
	s.mini.Server().SetPreHook(func(_ *miniserver.Peer, command string, args ...string) bool {
		see(command, args)
		return false
	})
	return c.Close()
}

func (s *server) dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // miniredis would start anew
		return nil, fmt.Errorf("dial: %w", net.ErrClosed)
	}
	return s.mini.Dial()
}

// close ends the server. When it has returned no goroutine of it is left.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.mini.Close()
}

// newRedisClient returns a go-redis client. It does no I/O.
func newRedisClient(dial func() (net.Conn, error)) *redis.Client {
	return redis.NewClient(&redis.Options{
		// A literal address, since a look-up of a name would leave the bubble.
		Addr:            "127.0.0.1:0",
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return dial() },
		DialerRetries:   1,    // who cannot connect has to tell so at once
		MaxRetries:      -1,   // and an error reply is looked at once
		DisableIdentity: true, // miniredis does not know CLIENT SETINFO
	})
}
