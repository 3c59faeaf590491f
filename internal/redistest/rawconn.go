package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// rawConn speaks as much RESP as the life of a server needs: commands whose
// reply is a single line.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

// dialRaw connects and, when there is a password, authenticates.
func dialRaw(ctx context.Context, network, addr, password string) (*rawConn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &rawConn{Conn: nc, r: bufio.NewReader(nc)}
	if password == "" {
		return c, nil
	}
	if reply, err := c.do(ctx, "AUTH", password); err != nil {
		return nil, errors.Join(err, c.Close())
	} else if reply != "+OK" {
		return nil, errors.Join(fmt.Errorf("AUTH: %s", reply), c.Close())
	}
	return c, nil
}

// do sends one command and returns the first line of its reply, with its type
// character and without the line end. It ends with ctx, after which the
// connection is of no further use.
func (c *rawConn) do(ctx context.Context, args ...string) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}
