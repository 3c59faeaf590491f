package rlocktest

import (
	"context"
	"net"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// Subscribers returns how many connections are subscribed to the channel.
func (k *Kit) Subscribers(channel string) int {
	return k.server.mini.PubSubNumSub(channel)[channel]
}

// Keys returns the keys in Redis.
func (k *Kit) Keys() []string { return k.server.mini.Keys() }

// Before calls f before the server executes a command of this name, within a
// script too. It replaces what was given before.
func (k *Kit) Before(command string, f func()) {
	k.server.mini.Server().SetPreHook(func(_ *miniserver.Peer, name string, args ...string) bool {
		if name == command {
			f()
		}
		k.ledger.see(name, args)
		return false
	})
}

// Dial makes a connection as Client does.
func (k *Kit) Dial() (net.Conn, error) { return k.network.dial() }

// Pipeline reports what becomes of commands that Client sends together, and
// whether they are sent.
func (k *Kit) Pipeline(ctx context.Context, cmds ...redis.Cmder) (sent bool, err error) {
	err = k.network.ProcessPipelineHook(func(context.Context, []redis.Cmder) error {
		sent = true
		return nil
	})(ctx, cmds)
	return sent, err
}
