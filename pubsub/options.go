package pubsub

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Sharding says whether sharded channels (SSUBSCRIBE) are used. The zero value is Auto.
type Sharding int8

const (
	// Auto uses plain channels (SUBSCRIBE) with every kind of client. A later
	// version will choose sharded channels in a cluster whose servers have them.
	Auto Sharding = iota
	// Off always uses plain channels.
	Off
	// On demands sharded channels. No client is supported yet: New returns an error.
	On
)

// The defaults of Options.
const (
	defaultPingEvery = 3 * time.Second
	defaultPongWait  = 2 * time.Second
	defaultLinger    = 500 * time.Millisecond
)

// Options configures a Hub. The zero value is valid and means the defaults.
// New copies it; later changes have no effect.
type Options struct {
	// Sharding chooses plain or sharded channels. Default Auto.
	Sharding Sharding

	// PingEvery is how long nothing may arrive on the connection before a
	// PING is sent. Default 3 s; a negative value is an error.
	PingEvery time.Duration

	// PongWait is how long the server may take to send anything after that
	// PING. Then the connection counts as dead and is replaced, so PingEvery +
	// PongWait bounds the time in which a dead connection is found. Default
	// 2 s; a negative value is an error. It has to exceed the round trip and
	// the longest time that a script may block the server.
	PongWait time.Duration

	// Linger is how long a channel stays subscribed after its last
	// Subscription was closed, and how long the connection stays open after
	// the last Subscription of all. A channel that is left and joined again
	// within Linger costs no command. Default 500 ms; a negative value is an
	// error.
	Linger time.Duration

	// Logger receives lost connections and refused channels. Nil discards.
	Logger *slog.Logger
}

// withDefaults returns o with its zero fields filled in, or an error that
// names the field that cannot be used and what to do about it.
func (o Options) withDefaults() (Options, error) {
	switch o.Sharding {
	case Auto, Off:
	case On:
		return o, errors.New("pubsub: Options.Sharding: On is not supported yet; use Auto or Off")
	default:
		return o, fmt.Errorf("pubsub: Options.Sharding: unknown value %d; use Auto or Off", o.Sharding)
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"PingEvery", &o.PingEvery, defaultPingEvery},
		{"PongWait", &o.PongWait, defaultPongWait},
		{"Linger", &o.Linger, defaultLinger},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("pubsub: Options.%s: %v is negative; leave it 0 for the default of %v", d.name, *d.value, d.standard)
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
