package faultproxy_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/latchkey-go/latchkey/internal/faultproxy"
)

// replies are single values in RESP2 and RESP3, with what stands in them.
var replies = []struct {
	raw   string
	items []string
}{
	{"+OK\r\n", nil},
	{"-ERR no\r\n", nil},
	{":-12\r\n", nil},
	{"$5\r\na\r\nb\n\r\n", nil},
	{"$0\r\n\r\n", nil},
	{"$-1\r\n", nil},
	{"*-1\r\n", nil},
	{"*0\r\n", nil},
	{"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n", []string{"message", "c", "hi"}},
	{"*3\r\n$1\r\na\r\n*1\r\n:5\r\n$-1\r\n", []string{"a", ""}},
	{"_\r\n", nil},
	{"#t\r\n", nil},
	{",1.5e3\r\n", nil},
	{"(349827349823749823749\r\n", nil},
	{"!9\r\nERR large\r\n", nil},
	{"=8\r\ntxt:text\r\n", nil},
	{"~2\r\n+a\r\n+b\r\n", []string{"a", "b"}},
	{"%2\r\n+server\r\n$5\r\nredis\r\n+proto\r\n:3\r\n", []string{"server", "redis", "proto", "3"}},
	{">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", []string{"subscribe", "c", "1"}},
	{"|1\r\n+ttl\r\n:3600\r\n*1\r\n:7\r\n", []string{"7"}},
}

func TestParseReplies(t *testing.T) {
	for _, r := range replies {
		raws, items, err := faultproxy.Frames(strings.NewReader(r.raw+"+NEXT\r\n"), false)
		if !errors.Is(err, io.EOF) || !slices.Equal(raws, []string{r.raw, "+NEXT\r\n"}) {
			t.Errorf("%q was cut into %q, %v", r.raw, raws, err)
			continue
		}
		if !slices.Equal(items[0], r.items) {
			t.Errorf("%q holds %q, want %q", r.raw, items[0], r.items)
		}
	}
}

func TestParseRequests(t *testing.T) {
	in := "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" + "PING  now \r\n" + "\r\n" + "*1\r\n$4\r\nQUIT\r\n"
	_, items, err := faultproxy.Frames(strings.NewReader(in), true)
	want := "[[GET k] [PING now] [] [QUIT]]"
	if !errors.Is(err, io.EOF) || fmt.Sprint(items) != want {
		t.Errorf("%v, %v; want %s", items, err, want)
	}
}

func TestParseCutShort(t *testing.T) {
	for _, r := range replies {
		for cut := 1; cut < len(r.raw); cut++ {
			raws, _, err := faultproxy.Frames(strings.NewReader(r.raw[:cut]), false)
			if len(raws) != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q gave %q, %v; want io.ErrUnexpectedEOF", r.raw[:cut], raws, err)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"type":            "?1\r\n",
		"empty line":      "\r\n",
		"bare newline":    "+OK\n",
		"length":          "$x\r\n",
		"negative":        "*-2\r\n",
		"streamed":        "$?\r\n",
		"huge length":     "$99999999999\r\n",
		"string too long": "$16777216\r\n",
		"string end":      "$1\r\nabc",
		"line too long":   "+" + strings.Repeat("x", 1<<17) + "\r\n",
		"depth":           strings.Repeat("*1\r\n", 100) + ":1\r\n",
		"attribute depth": strings.Repeat("*1\r\n|0\r\n", 100) + ":1\r\n",
		"frame too long":  "*99999\r\n" + strings.Repeat("$1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 20000),
	} {
		if raws, _, err := faultproxy.Frames(strings.NewReader(in), false); !errors.Is(err, faultproxy.ErrProtocol) {
			t.Errorf("%s: %d frames, %v; want a protocol error", name, len(raws), err)
		}
	}
}

// FuzzParser checks that whatever arrives, in whatever pieces, is cut into
// frames that are exactly the bytes that came, each of which is read the same
// way when it stands alone.
func FuzzParser(f *testing.F) {
	for _, r := range replies {
		f.Add([]byte(r.raw))
	}
	f.Add([]byte("PING\r\n*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("$?\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, requests := range []bool{false, true} {
			raws, items, err := faultproxy.Frames(strings.NewReader(string(in)), requests)
			if err == nil || !strings.HasPrefix(string(in), strings.Join(raws, "")) {
				t.Fatalf("%q was cut into %q, %v", in, raws, err)
			}
			slow, slowItems, _ := faultproxy.Frames(iotest.OneByteReader(strings.NewReader(string(in))), requests)
			if !slices.Equal(raws, slow) || fmt.Sprint(items) != fmt.Sprint(slowItems) {
				t.Fatalf("%q was cut into %q at once and into %q byte by byte", in, raws, slow)
			}
			for i, raw := range raws {
				again, againItems, _ := faultproxy.Frames(strings.NewReader(raw), requests)
				if len(again) != 1 || again[0] != raw || !slices.Equal(againItems[0], items[i]) {
					t.Fatalf("%q was read as %q alone, as %q among others", raw, againItems, items[i])
				}
			}
		}
	})
}
