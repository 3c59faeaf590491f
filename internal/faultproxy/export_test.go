package faultproxy

import "io"

// MaxPending is the bound on unanswered requests of a connection.
const MaxPending = maxPending

// ErrProtocol is what the parser says of bytes that are not RESP.
var ErrProtocol = errProtocol

// Frames cuts a stream into frames with one of the two parsers, until it ends
// or is refused, and returns the bytes and the items of each.
func Frames(r io.Reader, requests bool) (raws []string, items [][]string, err error) {
	p := newParser(r)
	next := p.reply
	if requests {
		next = p.request
	}
	for {
		f, err := next()
		if err != nil {
			return raws, items, err
		}
		raws, items = append(raws, string(f.raw)), append(items, f.strings())
	}
}
