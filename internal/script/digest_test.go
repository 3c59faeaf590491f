package script_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
)

// scripts are all scripts of the package by name.
func scripts() map[string]*script.Script {
	return map[string]*script.Script{
		"acquire": script.AcquireScript, "release": script.ReleaseScript,
		"renew": script.RenewScript, "info": script.InfoScript,
	}
}

// TestDigest loads each script into a server: it compiles, and EVALSHA finds it
// by the digest that was computed here.
func TestDigest(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	for name, s := range scripts() {
		sha, err := rdb.ScriptLoad(t.Context(), s.Source()).Result()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sha != s.SHA() {
			t.Errorf("%s: the server's digest is %s, ours %s", name, sha, s.SHA())
		}
	}
}

// TestDigestsDiffer catches a script that was embedded under two names.
func TestDigestsDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for name, s := range scripts() {
		if other, ok := seen[s.SHA()]; ok {
			t.Errorf("%s and %s are the same script", name, other)
		}
		seen[s.SHA()] = name
	}
}
