package redistest

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Client returns a go-redis client with that library's defaults, which the test
// closes at its end. The hooks change the options first. A test that closes the
// client itself is fine.
func (s *Server) Client(tb TB, hooks ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	opts := &redis.Options{Addr: s.Addr(), Password: s.cfg.Password}
	for _, h := range hooks {
		h(opts)
	}
	c := redis.NewClient(opts)
	tb.Cleanup(func() { _ = c.Close() }) // only a second Close fails, and harmlessly
	return c
}

// Prefix returns a prefix for the keys and channels of one test, different in
// each call and each run. It holds none of the characters that mean something
// in a glob pattern or a hash tag, and ends in a colon.
func Prefix(tb TB) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`{}*?[]^\`, r) || r <= ' ' {
			return '_'
		}
		return r
	}, tb.Name())
	return clean + ":" + rand.Text() + ":"
}

// Connection is one line of CLIENT LIST.
type Connection struct {
	ID            int64
	Addr          string // the client's side
	Name          string
	LastCommand   string
	Subscriptions int               // channels, patterns and shard channels
	Fields        map[string]string // all of the line, by field name
}

// Connections returns the connections that the server has, without the one
// that asks.
func (s *Server) Connections(tb TB) []Connection {
	tb.Helper()
	var list []Connection
	s.ask(tb, func(ctx context.Context, c *redis.Conn) error {
		own, err := c.ClientID(ctx).Result()
		if err != nil {
			return err
		}
		text, err := c.ClientList(ctx).Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if conn := parseConnection(line); conn.ID != own {
				list = append(list, conn)
			}
		}
		return nil
	})
	return list
}

func parseConnection(line string) Connection {
	f := make(map[string]string)
	for field := range strings.FieldsSeq(line) {
		k, v, _ := strings.Cut(field, "=")
		f[k] = v
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(f[name]) // a field that this server does not have counts 0
		return n
	}
	return Connection{
		ID: int64(number("id")), Addr: f["addr"], Name: f["name"], LastCommand: f["cmd"],
		Subscriptions: number("sub") + number("psub") + number("ssub"), Fields: f,
	}
}

// ask runs fn on a connection of its own and fails the test when fn does.
func (s *Server) ask(tb TB, fn func(context.Context, *redis.Conn) error) {
	tb.Helper()
	if err := s.tryAsk(fn); err != nil {
		tb.Fatalf("redistest: %s: %v", s.Addr(), err)
	}
}

// tryAsk does not use the context of the test, which has ended by the time
// that its cleanups run.
func (s *Server) tryAsk(fn func(context.Context, *redis.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	client := s.admin()
	defer client.Close() //nolint:errcheck // nothing more is wanted of it
	conn := client.Conn()
	defer conn.Close() //nolint:errcheck // likewise
	return fn(ctx, conn)
}

// admin is a client that never repeats a command and cannot be held up by a
// server that does not answer.
func (s *Server) admin() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: s.cfg.Password, Protocol: 2, MaxRetries: -1,
		DisableIdentity: true, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
}
