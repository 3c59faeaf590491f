package faultproxy

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"slices"
	"strings"
)

// Request is one command on its way to the server.
type Request struct {
	Args         []string // the command and its arguments
	Subscription bool     // it is on a connection that has sent SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE
}

// Name is the command in upper case, or "" for an empty line.
func (r Request) Name() string {
	if len(r.Args) == 0 {
		return ""
	}
	return strings.ToUpper(r.Args[0])
}

// Matcher says which requests a rule is about. It is called from several
// goroutines, one at a time for one proxy, and must not call the proxy.
type Matcher func(Request) bool

// Any matches every request.
func Any() Matcher { return func(Request) bool { return true } }

// Cmd matches the commands with one of the names, in whatever case.
func Cmd(names ...string) Matcher {
	return func(r Request) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, r.Name()) })
	}
}

// Script matches the calls of the script with this SHA-1 digest, by EVALSHA or
// EVAL and their read-only forms.
func Script(sha string) Matcher {
	return func(r Request) bool {
		if len(r.Args) < 2 {
			return false
		}
		switch r.Name() {
		case "EVALSHA", "EVALSHA_RO":
			return strings.EqualFold(r.Args[1], sha)
		case "EVAL", "EVAL_RO":
			sum := sha1.Sum([]byte(r.Args[1])) //nolint:gosec // see above
			return strings.EqualFold(hex.EncodeToString(sum[:]), sha)
		}
		return false
	}
}

// Arg matches the requests one of whose arguments, the command's name apart, is
// exactly this one: a key, a channel, an owner.
func Arg(value string) Matcher {
	return func(r Request) bool { return len(r.Args) > 1 && slices.Contains(r.Args[1:], value) }
}

// OnSubscription matches the requests on connections that have subscribed, the
// subscribing one included.
func OnSubscription() Matcher { return func(r Request) bool { return r.Subscription } }

// All matches what all of the matchers do.
func All(ms ...Matcher) Matcher {
	return func(r Request) bool {
		return !slices.ContainsFunc(ms, func(m Matcher) bool { return !m(r) })
	}
}

// Limit says at which of its matches a rule acts; without one, at each.
type Limit func(*Rule)

// Nth is the n-th match alone, counted from 1 and from the making of the rule,
// over all connections.
func Nth(n int) Limit { return func(r *Rule) { r.first, r.last = n, n } }

// Times is the first k matches.
func Times(k int) Limit { return func(r *Rule) { r.first, r.last = 1, k } }

// From is the n-th match and all after it.
func From(n int) Limit { return func(r *Rule) { r.first, r.last = n, -1 } }
