package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// link is one connection. Each direction has a goroutine that reads and one
// that delivers, so that, as on a real network, writing never waits for the
// other side.
type link struct {
	n              *network
	client, server net.Conn // the network's end of each

	mu   sync.Mutex
	hold *fault // of the replies; guarded by mu
}

// packet is a part of what goes over a link.
type packet struct {
	bytes []byte
	fault *fault
}

// room is how many packets a link takes up before its sender has to wait. No
// test comes near it while a direction is held.
const room = 2048

func (n *network) connect(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	refusal := n.refusal
	n.mu.Unlock()
	if refusal != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: refusal}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	server, err := n.r.server.Dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	l := &link{n: n, client: far, server: server}
	n.mu.Lock()
	n.links[l] = false
	n.mu.Unlock()
	requests, replies := make(chan packet, room), make(chan packet, room)
	go l.readRequests(requests)
	go l.deliverRequests(requests, replies)
	go l.readReplies(replies)
	go l.deliverReplies(replies)
	return near, nil
}

func (l *link) close() {
	_ = l.client.Close() // a pipe has no way to fail
	_ = l.server.Close()
}

// readRequests takes what the client sends, command by command.
func (l *link) readRequests(requests chan<- packet) {
	defer close(requests)
	in := bufio.NewReader(l.client)
	for {
		args, raw, err := readCommand(in)
		if err != nil {
			return
		}
		requests <- packet{raw, l.n.take(l, args)}
	}
}

// deliverRequests brings them to the server, or does what their fault says. When
// the client has gone, the connection to the server ends after the last one.
func (l *link) deliverRequests(requests <-chan packet, replies chan<- packet) {
	defer l.forget()
	for p := range requests {
		if f := p.fault; f != nil {
			switch f.fate {
			case holdRequest:
				if !f.pass() {
					l.close()
					continue
				}
			case holdReply, cutReply:
				l.mu.Lock()
				l.hold = f
				l.mu.Unlock()
			case cut:
				l.close()
				continue
			case answered:
				replies <- packet{bytes: []byte(f.answer)}
				continue
			}
		}
		if _, err := l.server.Write(p.bytes); err != nil {
			continue // the server has gone; what is left is lost
		}
	}
}

func (l *link) forget() {
	l.close()
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	delete(l.n.links, l)
}

// readReplies takes what the server sends. It never closes replies, to which
// answers may still be added.
func (l *link) readReplies(replies chan<- packet) {
	buf := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			replies <- packet{}
			return
		}
		l.mu.Lock()
		hold := l.hold
		l.mu.Unlock()
		replies <- packet{slices.Clone(buf[:n]), hold}
	}
}

// deliverReplies brings them to the client.
func (l *link) deliverReplies(replies <-chan packet) {
	defer l.close()
	for p := range replies {
		switch {
		case p.bytes == nil:
			return
		case p.fault != nil && p.fault.fate == cutReply:
			return
		case p.fault != nil && !p.fault.pass():
			return
		}
		l.n.travel()
		if _, err := l.client.Write(p.bytes); err != nil {
			return
		}
	}
}

// readCommand reads an array of bulk strings. It returns them, and the bytes.
func readCommand(in *bufio.Reader) (args []string, raw []byte, err error) {
	count, raw, err := readLength(in, '*', nil)
	for range count {
		var size int
		if size, raw, err = readLength(in, '$', raw); err != nil {
			return nil, nil, err
		}
		text := make([]byte, size+2)
		if _, err = io.ReadFull(in, text); err != nil {
			return nil, nil, err
		}
		args, raw = append(args, string(text[:size])), append(raw, text...)
	}
	return args, raw, err
}

func readLength(in *bufio.Reader, kind byte, raw []byte) (n int, _ []byte, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, nil, err
	}
	if line[0] != kind {
		return 0, nil, fmt.Errorf("%q where %q begins a length", line, kind)
	}
	n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
	return n, append(raw, line...), err
}
