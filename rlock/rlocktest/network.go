package rlocktest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// network is between Client and the server. Commands fail before they are given
// to a connection, so that one that fails was not executed, and so that no
// connection is left that is half usable. Subscriptions pass by go-redis' hooks;
// their connections break instead.
type network struct {
	server *server

	mu          sync.Mutex
	failure     error // what commands get; nil if they are sent
	away        bool  // the failure is that there is no connection
	subscribers map[*link]struct{}
}

// dial connects to the server, unless it is out of reach.
func (n *network) dial() (net.Conn, error) {
	n.mu.Lock()
	failure, away := n.failure, n.away
	n.mu.Unlock()
	if away {
		return nil, failure
	}
	c, err := n.server.dial()
	if err != nil {
		return nil, err
	}
	return &link{Conn: c, network: n}, nil
}

// DialHook is a part of redis.Hook, and changes nothing.
func (n *network) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is a part of redis.Hook.
func (n *network) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := n.failing(); err != nil && !handshake(cmd) {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is a part of redis.Hook.
func (n *network) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := n.failing()
		if err == nil || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return !handshake(c) }) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// handshake reports whether go-redis sends a command to prepare a connection,
// which may be one for subscriptions. Latchkey sends none of these.
func handshake(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "client", "select":
		return true
	}
	return false
}

// link is a connection of Client.
type link struct {
	net.Conn

	network *network
}

// Write sends to the server.
func (l *link) Write(p []byte) (int, error) {
	if subscribes(p) && !l.network.join(l) {
		_ = l.Close() // a pipe has no way to fail
		return 0, net.ErrClosed
	}
	return l.Conn.Write(p)
}

// Close ends the connection.
func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.subscribers, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}

// join lists a connection that is about to subscribe. It returns false if the
// server has become out of reach since the connection was made.
func (n *network) join(l *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return false
	}
	n.subscribers[l] = struct{}{}
	return true
}

// subscribes reports whether a message is a SUBSCRIBE: an array whose first
// element is that word. A connection for subscriptions sends one at a time.
func subscribes(message []byte) bool {
	const first = "$9\r\nsubscribe\r\n"
	_, elements, _ := bytes.Cut(message, []byte("\r\n"))
	return len(elements) >= len(first) && bytes.EqualFold(elements[:len(first)], []byte(first))
}
