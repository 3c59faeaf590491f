package redistest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestParseCall(t *testing.T) {
	for line, want := range map[string]redistest.Call{
		`+1.5 [0 127.0.0.1:5] "set" "a b" "\x00\"\\\n"`: {Source: "127.0.0.1:5", Args: []string{"set", "a b", "\x00\"\\\n"}},
		`+1.5 [0 lua] "get" ""`:                         {Source: "lua", Args: []string{"get", ""}},
		`+1.5 [3 [::1]:7] "ping"`:                       {Source: "[::1]:7", Args: []string{"ping"}},
	} {
		got, err := redistest.ParseCall(line)
		if err != nil || got.Source != want.Source || !slices.Equal(got.Args, want.Args) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, bad := range []string{"", "+OK", `+1 [0 x] "open`, `+1 [0] "x"`} {
		if got, err := redistest.ParseCall(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func TestParseCommandStats(t *testing.T) {
	got, err := redistest.ParseCommandStats("# Commandstats\r\ncmdstat_client|id:calls=12,usec=3\r\ncmdstat_get:calls=1,usec=1\r\n")
	if err != nil || !maps.Equal(got, map[string]int64{"client|id": 12, "get": 1}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := redistest.ParseCommandStats("cmdstat_get:calls=x,"); err == nil {
		t.Errorf("a count that is none was read as %v", got)
	}
}

func TestEscapeGlob(t *testing.T) {
	if got := redistest.EscapeGlob(`a*?[b]\`); got != `a\*\?\[b\]\\` {
		t.Errorf("got %s", got)
	}
}
