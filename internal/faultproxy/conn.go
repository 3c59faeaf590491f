package faultproxy

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending bounds the requests of a connection that wait for their replies;
// the client's next one waits in its socket.
const maxPending = 4096

// conn is one client's connection and its counterpart to the server. Two
// goroutines serve it, one for each direction.
type conn struct {
	proxy        *Proxy
	client       *net.TCPConn
	server       atomic.Pointer[net.TCPConn] // nil until dialled; the pumps start after that
	subscription atomic.Bool

	endOnce sync.Once
	done    chan struct{} // closed when the sockets are

	lostUp bool // nothing reaches the server any more; only pumpUp uses it

	// mu also orders what is written to the client.
	mu       sync.Mutex
	pending  []*exchange // in the order of the requests
	room     sync.Cond   // pending has become shorter, or the connection is over
	lostDown bool        // nothing reaches the client any more
}

// exchange is a request and what is to happen to its reply.
type exchange struct {
	name   string  // of the command, in lower case
	rules  []*Rule // that act on the reply; applied once
	answer string  // goes to the client in place of a reply
	want   int     // how many frames answer it; 0: one or more, which only the next reply tells
	got    int     // how many of them the client has been sent
}

// complete tells whether it has been answered by all frames.
func (ex *exchange) complete() bool { return ex.got > 0 && ex.got == ex.want }

// open tells whether it may be complete: it has been answered, and only the
// next reply tells whether by all frames.
func (ex *exchange) open() bool { return ex.want == 0 && ex.got > 0 }

// subscribeFamily holds the commands that are answered once for each channel.
// Without a channel, the unsubscribing ones are answered once for each
// subscription that there is, or once.
var subscribeFamily = []string{"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"}

func newExchange(req Request) *exchange {
	ex := &exchange{name: strings.ToLower(req.Name()), want: 1}
	if slices.Contains(subscribeFamily, ex.name) {
		ex.want = len(req.Args) - 1
	}
	return ex
}

// end closes both sockets and wakes everything that waits on the connection. It
// takes mu last: a goroutine that is stuck with it in a write to the client is
// free once the socket is closed.
func (c *conn) end() {
	c.endOnce.Do(func() {
		close(c.done)
		_ = c.client.Close()
	})
	if server := c.server.Load(); server != nil {
		_ = server.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room.Broadcast()
}

// reset ends the connection with a RST to both sides.
func (c *conn) reset() verdict {
	_ = c.client.SetLinger(0)
	if server := c.server.Load(); server != nil {
		_ = server.SetLinger(0)
	}
	c.end()
	return over
}

// sleep keeps the calling direction for d, or until the connection is over.
func (c *conn) sleep(d time.Duration) verdict {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return pass
	case <-c.done:
		return over
	}
}

// wait keeps the calling direction until released is closed or the connection
// is over.
func (c *conn) wait(released <-chan struct{}) verdict {
	select {
	case <-released:
		return pass
	case <-c.done:
		return over
	}
}

func (c *conn) isOver() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// expect puts an exchange at the end of the queue. A connection that is silent
// towards the client waits for no replies.
func (c *conn) expect(ex *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) >= maxPending && !c.lostDown && !c.isOver() {
		c.room.Wait()
	}
	if c.lostDown {
		return
	}
	c.pending = append(c.pending, ex)
	c.writeAnswers()
}

// pop removes the first exchange. The caller holds mu.
func (c *conn) pop() {
	c.pending = c.pending[1:]
	c.room.Signal()
}

// writeAnswers sends the proxy's own answers whose turn has come. The caller
// holds mu.
func (c *conn) writeAnswers() {
	for len(c.pending) > 0 && !c.lostDown {
		head := c.pending[0]
		if head.open() && len(c.pending) > 1 && c.pending[1].answer != "" {
			c.pop() // as far as one can know it has been answered
			continue
		}
		if head.answer == "" {
			return
		}
		c.pop()
		c.write([]byte(head.answer))
	}
}

// write sends to the client. When that fails the client has gone, and what the
// server sends is read and thrown away, so that the server is not cut off in the
// middle of what it executes. The caller holds mu.
func (c *conn) write(raw []byte) {
	if _, err := c.client.Write(raw); err != nil {
		c.silence()
	}
}

// silence makes the connection silent towards the client. The caller holds mu.
func (c *conn) silence() {
	c.lostDown = true
	c.pending = nil
	c.room.Broadcast()
}
