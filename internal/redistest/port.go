package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range from which systems number outgoing
// connections (32768 on Linux, 49152 elsewhere). Otherwise a client that dials
// while the server is down could be given the server's own port, and Restart
// would find it taken.
const (
	firstPort   = 21000
	portCount   = 10000
	busDistance = 10000 // a cluster node's bus port is its port + this
	portTries   = 50
)

// freePort returns a loopback port on which nobody listened at the moment of
// the call; somebody else may take it before the caller does. For a cluster
// node the bus port was free as well.
func freePort(ctx context.Context, cluster bool) (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(portCount)
		if cluster {
			port -= busDistance
		}
		if !portIsFree(ctx, port) || cluster && !portIsFree(ctx, port+busDistance) {
			continue
		}
		return port, nil
	}
	return 0, fmt.Errorf("redistest: %d loopback ports in a row were taken", portTries)
}

func portIsFree(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
