package main

import (
	"bytes"
	"context"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// commandCounter counts the commands that the clients of one strategy send. It
// reads them on the wire, from the bytes that are written to every connection:
// a hook of go-redis sees neither SUBSCRIBE and PING, which its PubSub writes by
// itself, nor what it resends inside one call. The server's own statistics would
// not do: INFO counts what a script calls as further commands, both in
// commandstats and in total_commands_processed. Here a script counts once.
type commandCounter struct {
	mu     sync.Mutex
	counts map[string]int64 // by lower-case verb
}

// setUp are the commands that open a connection. They are not counted: what a
// strategy costs does not depend on when its pool grew.
var setUp = map[string]bool{"hello": true, "auth": true, "select": true, "client": true}

func newCommandCounter() *commandCounter {
	return &commandCounter{counts: make(map[string]int64)}
}

func (c *commandCounter) add(verb string) {
	verb = strings.ToLower(verb)
	if setUp[verb] {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[verb]++
}

// snapshot returns the counts so far.
func (c *commandCounter) snapshot() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// dialTimeout is go-redis' default, which its dialer does not know before the
// options belong to a client.
const dialTimeout = 5 * time.Second

// watch makes every connection of a client with these options count.
func (c *commandCounter) watch(opts *redis.Options) {
	if opts.DialTimeout == 0 {
		opts.DialTimeout = dialTimeout
	}
	dial := redis.NewDialer(opts)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, requests: requestReader{command: c.add}}, nil
	}
}

// countedConn counts the commands that are written to it. go-redis writes to a
// connection from one goroutine at a time.
type countedConn struct {
	net.Conn
	requests requestReader
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.requests.feed(p[:n])
	return n, err
}

// requestReader finds the verbs in a stream of requests, each an array of bulk
// strings: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n". The stream may be cut anywhere.
type requestReader struct {
	command func(verb string)

	line    []byte // the header line under way
	verb    []byte // the first argument under way
	inVerb  bool   // the next bulk string is a verb
	payload int    // bytes of a bulk string that are still to come, its CRLF included
}

func (r *requestReader) feed(p []byte) {
	for len(p) > 0 {
		if r.payload > 0 {
			p = r.feedPayload(p)
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			r.line = append(r.line, p...)
			return
		}
		r.line = append(r.line, p[:end]...)
		p = p[end+1:]
		r.header(strings.TrimSuffix(string(r.line), "\r"))
		r.line = r.line[:0]
	}
}

// header takes a line that announces an array or a bulk string.
func (r *requestReader) header(line string) {
	if line == "" {
		return
	}
	switch line[0] {
	case '*':
		r.inVerb = true
	case '$':
		if n, err := strconv.Atoi(line[1:]); err == nil {
			r.payload = n + len("\r\n")
		}
	}
}

// feedPayload takes what p has of the bulk string and returns the rest.
func (r *requestReader) feedPayload(p []byte) []byte {
	n := min(r.payload, len(p))
	if r.inVerb {
		r.verb = append(r.verb, p[:n]...)
	}
	r.payload -= n
	if r.payload == 0 && r.inVerb {
		r.command(strings.TrimSuffix(string(r.verb), "\r\n"))
		r.verb, r.inVerb = r.verb[:0], false
	}
	return p[n:]
}
