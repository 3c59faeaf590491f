package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Call is one command that the server executed.
type Call struct {
	Source string   // the client's address, or "lua" for a call from a script
	Args   []string // the command and its arguments
}

// Name is the command in upper case.
func (c Call) Name() string {
	if len(c.Args) == 0 {
		return ""
	}
	return strings.ToUpper(c.Args[0])
}

// FromScript tells whether a script made the call.
func (c Call) FromScript() bool { return c.Source == "lua" }

// Monitor records what the server executes, in its order, from Server.Monitor
// to Stop or the end of the test. It sees the whole server. Its methods are safe
// for concurrent use.
type Monitor struct {
	server *Server
	conn   *rawConn
	done   chan struct{} // closed when the reading goroutine has ended

	mu    sync.Mutex // guards what follows
	calls []Call
	err   error
	stop  bool
}

// Monitor starts to record. Every command that is sent after it has returned is
// seen.
func (s *Server) Monitor(tb TB) *Monitor {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	conn, err := dialRaw(ctx, "tcp", s.Addr(), s.cfg.Password)
	if err != nil {
		tb.Fatalf("redistest: monitor: %v", err)
	}
	reply, err := conn.do(ctx, "MONITOR")
	if err != nil || reply != "+OK" {
		_ = conn.Close()
		tb.Fatalf("redistest: monitor: %q, %v", reply, err)
	}
	m := &Monitor{server: s, conn: conn, done: make(chan struct{})}
	go m.read()
	tb.Cleanup(m.close)
	return m
}

// Calls returns what was executed so far. A command whose reply was received
// before the call is among them. After Stop it returns what Stop did.
func (m *Monitor) Calls(tb TB) []Call {
	tb.Helper()
	m.mu.Lock()
	stopped := m.stop
	m.mu.Unlock()
	if !stopped {
		m.catchUp(tb)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return withoutMarks(m.calls)
}

// Stop returns what Calls does and ends the recording.
func (m *Monitor) Stop(tb TB) []Call {
	tb.Helper()
	calls := m.Calls(tb)
	m.close()
	return calls
}

// close ends the reading goroutine and waits for it.
func (m *Monitor) close() {
	m.mu.Lock()
	m.stop = true
	m.mu.Unlock()
	_ = m.conn.Close()
	<-m.done
}

func (m *Monitor) read() {
	defer close(m.done)
	for {
		line, err := m.conn.r.ReadString('\n')
		var call Call
		if err == nil {
			call, err = parseCall(strings.TrimRight(line, "\r\n"))
		}
		m.mu.Lock()
		if err != nil {
			m.err = err
			m.mu.Unlock()
			return
		}
		m.calls = append(m.calls, call)
		m.mu.Unlock()
	}
}

const markPrefix = "latchkey-monitor-"

// catchUp executes a command that only marks the place, and waits until it is
// seen: the server reports in the order of execution, so all that was answered
// before is then recorded.
func (m *Monitor) catchUp(tb TB) {
	tb.Helper()
	mark := markPrefix + rand.Text()
	if err := m.server.mark(mark); err != nil {
		tb.Fatalf("redistest: monitor: %v", err)
	}
	var err error
	if !poll(readyLimit, func() bool {
		var seen bool
		seen, err = m.saw(mark)
		return seen || err != nil
	}) {
		err = errors.New("the server does not report what it executes")
	}
	if err != nil {
		tb.Fatalf("redistest: monitor: %v", err)
	}
}

func (m *Monitor) saw(mark string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range slices.Backward(m.calls) {
		if len(call.Args) == 2 && call.Args[1] == mark {
			return true, nil
		}
	}
	return false, m.err
}

// mark executes ECHO on a connection of its own.
func (s *Server) mark(mark string) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	c, err := dialRaw(ctx, "tcp", s.Addr(), s.cfg.Password)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, "ECHO", mark)
	return errors.Join(err, c.Close())
}

func withoutMarks(calls []Call) []Call {
	var kept []Call
	for _, c := range calls {
		if len(c.Args) != 2 || !strings.HasPrefix(c.Args[1], markPrefix) {
			kept = append(kept, c)
		}
	}
	return kept
}

// parseCall reads a line such as
// `+1339518083.107412 [0 127.0.0.1:60866] "set" "a" "x\x00y"`.
func parseCall(line string) (Call, error) {
	_, rest, ok := strings.Cut(line, "[")
	source, rest, ok2 := strings.Cut(rest, "] ")
	_, source, ok3 := strings.Cut(source, " ")
	if !ok || !ok2 || !ok3 {
		return Call{}, fmt.Errorf("monitor: cannot read %q", line)
	}
	call := Call{Source: source}
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return Call{}, fmt.Errorf("monitor: cannot read %q: %w", line, err)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return Call{}, fmt.Errorf("monitor: cannot read %q: %w", line, err)
		}
		call.Args = append(call.Args, arg)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return call, nil
}
