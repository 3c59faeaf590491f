// Package faultproxy is a TCP proxy between a Redis client and a server that
// understands both sides, so that a test can say which command or reply is to
// meet which fault:
//
//	p := faultproxy.New(t, server.Addr())
//	lost := p.On(faultproxy.Script(sha), faultproxy.Nth(2)).SwallowReply()
//	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	...
//	<-lost.Fired() // the server has executed the second call; nobody will hear of it
//
// # What a fault looks like
//
// TCP never loses bytes in the middle of a stream: what is lost is sent again
// until it arrives or the connection ends. The proxy keeps to that. When a reply
// is swallowed or dropped, that connection is silent towards the client from
// then on, until somebody closes it; the commands that follow are still
// executed. When a request is dropped, nothing that the client sends later on
// that connection arrives either. Replies keep the order of their commands, so
// a delayed or held one holds up those behind it, and a delayed or held request
// those behind it. Other connections, and those made later, are not affected.
//
// A client that gives up and closes its connection does not call back what is on
// its way: a request that is being delayed or held is executed when its time
// comes. This is how a late copy of a command reaches a server.
//
// # What it cannot do
//
// It takes every connection at once, as the kernel does for a server that hangs;
// a dial never times out, and it is reset, not refused, when the server is down.
// It counts one reply for each command, and for the subscribe family one for
// each channel, so CLIENT REPLY OFF and SKIP must not be used through it.
// A request or reply may be maxFrame (16 MiB) long; a longer one ends the
// connection.
package faultproxy
