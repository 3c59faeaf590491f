package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestRequestReaderWhereverTheStreamIsCut(t *testing.T) {
	stream := "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\n*1\r\n$4\r\n" + "*1\r\n$4\r\nping\r\n" + "*2\r\n$3\r\nget\r\n$0\r\n\r\n"
	want := []string{"SET", "ping", "get"}
	for size := 1; size <= len(stream); size++ {
		var got []string
		r := requestReader{command: func(verb string) { got = append(got, verb) }}
		for chunk := range slices.Chunk([]byte(stream), size) {
			r.feed(chunk)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in chunks of %d: %q", size, got)
		}
	}
}

// What is counted on the wire is what a real server says it was sent, for every
// command that no script calls. It also shows why the total of INFO would not do:
// there what a script calls counts too.
func TestCountsAgreeWithTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.New(t, redistest.Config{})
	for _, s := range allStrategies() {
		t.Run(s.name(), func(t *testing.T) {
			onTarget := &target{kind: "given", options: func() *redis.Options { return &redis.Options{Addr: server.Addr()} }}
			var sent map[string]int64
			var turns int
			served := server.Commands(t, func() {
				sent, turns = playOnce(t, s, onTarget, redistest.Prefix(t))
				// A server that has dropped a connection has read all of it.
				redistest.Eventually(t, 5*time.Second, func() bool { return len(server.Connections(t)) <= 1 },
					"only the connection that reads the statistics is left")
			})
			compareCounts(t, sent, served)
			if n := inScripts(sent, served); n < int64(turns) {
				t.Errorf("the server counted %d commands inside scripts for %d turns: INFO would do", n, turns)
			}
		})
	}
}

// playOnce plays one round and returns all that was sent until the clients were
// closed.
func playOnce(t *testing.T, s strategy, on *target, prefix string) (sent map[string]int64, turns int) {
	t.Helper()
	in := shape{name: "test", clients: 2, goroutines: 3}
	c, err := enter(t.Context(), s, in, on, prefix+s.name(), settings{poll: 5 * time.Millisecond})
	if err == nil {
		err = playRound(t.Context(), c, 300*time.Millisecond, &progress{})
	}
	if err != nil {
		t.Error(err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	return c.commands.snapshot(), c.tally.summarise(s.name()).Turns
}

func compareCounts(t *testing.T, sent, served map[string]int64) {
	t.Helper()
	if sent["evalsha"] == 0 {
		t.Errorf("no script was counted: %v", sent)
	}
	for verb := range maps.Keys(sent) {
		if sent[verb] != served[verb] {
			t.Errorf("%s: %d were sent, the server says %d", verb, sent[verb], served[verb])
		}
	}
}

// inScripts returns how many commands the server counted that nobody sent.
func inScripts(sent, served map[string]int64) int64 {
	var n int64
	for name, calls := range served {
		if verb, _, _ := strings.Cut(name, "|"); !setUp[verb] {
			n += calls - sent[name]
		}
	}
	return n
}
