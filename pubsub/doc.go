// Package pubsub wakes waiters. A Hub holds one subscription connection to
// Redis and shares it between any number of channels and goroutines: each
// Subscription is a channel of capacity one that fires when something was
// published, whatever it was. Payloads are ignored: the state that the waiter
// looks at when it wakes is the truth, the message only says when to look.
//
// # Guarantee
//
// Subscribe returns after the server has confirmed the channel, and the
// confirmation is always one of a SUBSCRIBE that was sent after the last
// UNSUBSCRIBE of that channel. From then on, as long as the connection lives,
// each message that is published on the channel leads to a value in Wake that
// is received after the message was published. Several messages may share one
// value.
//
// When the connection is lost, messages are lost with it. The hub makes a new
// connection, subscribes again, and fires Wake of every subscription as soon as
// its channel is confirmed again. So a waiter that looks at the state once
// after Subscribe and once after each value from Wake never misses the last
// change; at worst it sees it late.
//
// # How late
//
// A connection on which nothing arrived for Options.PingEvery is sent a PING,
// and it counts as dead when nothing at all arrives within Options.PongWait.
// A hung server and a network that swallows packets are therefore noticed
// PingEvery + PongWait (5 seconds by default) after the last message from the
// server. A connection that the server or the network closes is noticed at
// once. The first attempt to connect again is made at once, later ones after
// pauses that grow to one second while the server cannot be reached, with jitter.
//
// The timeouts of the go-redis client bound the calls that the hub makes
// (DialTimeout, ReadTimeout, WriteTimeout), but no method of this package waits
// for such a call longer than its context, or than stated at Hub.Close. An
// attempt to connect that takes longer than ten seconds is left behind.
package pubsub
