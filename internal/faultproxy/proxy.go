package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	acceptRetry = 10 * time.Millisecond
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Cleanup(fn func())
	Fatalf(format string, args ...any)
}

// Proxy passes connections on to a server. Its methods are safe for concurrent
// use. The zero value is of no use: take one from New.
type Proxy struct {
	server   string
	listener net.Listener
	ctx      context.Context //nolint:containedctx // ends with the proxy; it bounds its dials
	cancel   context.CancelFunc
	wg       sync.WaitGroup // the accepting goroutine and those of the connections

	mu    sync.Mutex // guards what follows
	rules []*Rule
	conns map[*conn]struct{}
	holes holes
}

// New starts a proxy on a free loopback port in front of the server, a
// host:port, which need not run yet. The end of the test closes it.
func New(tb TB, server string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	ctx, cancel := context.WithCancel(context.Background())
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		tb.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{server: server, listener: l, ctx: ctx, cancel: cancel, conns: make(map[*conn]struct{})}
	p.holes.changed = make(chan struct{})
	p.wg.Go(p.accept)
	tb.Cleanup(p.Close)
	return p
}

// Addr is where clients connect, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close stops to listen and resets every connection. When it has returned no
// goroutine of the proxy is left; what was delayed or held is lost. A second
// call does nothing.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close() // only a second Close fails
	p.KillConnections()
	p.wg.Wait()
}

// accept ends when Close closes the listener. Other errors, such as a shortage
// of file descriptors, pass.
func (p *Proxy) accept() {
	for p.ctx.Err() == nil {
		nc, err := p.listener.Accept()
		if err != nil {
			p.pause()
			continue
		}
		c := &conn{proxy: p, client: nc.(*net.TCPConn), done: make(chan struct{})}
		c.room.L = &c.mu
		if !p.register(c) {
			c.end()
			return
		}
		p.wg.Go(c.run)
	}
}

// pause waits before the next attempt to accept, or until Close.
func (p *Proxy) pause() {
	t := time.NewTimer(acceptRetry)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
	}
}

// register adds the connection, unless the proxy has been closed: Close cancels
// ctx before it looks for connections, so that each is refused here or found there.
func (p *Proxy) register(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// run serves one connection until both of its directions have ended.
func (c *conn) run() {
	defer c.proxy.forget(c)
	defer c.end()
	if !c.dial() {
		return
	}
	var wg sync.WaitGroup
	wg.Go(c.pumpUp)
	wg.Go(c.pumpDown)
	wg.Wait()
}

// dial connects to the server. When it is down, the client is reset, or left in
// silence while a black hole hides that from it.
func (c *conn) dial() bool {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(c.proxy.ctx, "tcp", c.proxy.server)
	if err != nil {
		if c.inHole(Downstream) {
			_, _ = io.Copy(io.Discard, c.client)
		}
		c.reset()
		return false
	}
	c.server.Store(nc.(*net.TCPConn))
	if c.isOver() { // killed while it dialled: end may not have seen the server's side
		_ = nc.Close()
		return false
	}
	return true
}
