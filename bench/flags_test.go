package main

import (
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBadFlagsNameTheFlagAndTheRemedy(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "out.json")
	tests := []struct {
		args []string
		says []string
	}{
		{[]string{"-duration", "7"}, []string{"-duration", "unit"}},
		{[]string{"-duration", "1ms"}, []string{"-duration", "50ms"}},
		{[]string{"-duration", "-1s"}, []string{"-duration", "50ms"}},
		{[]string{"-clients", "0"}, []string{"-clients", "from 1 to 100"}},
		{[]string{"-clients", "many"}, []string{"-clients", "from 1 to 100"}},
		{[]string{"-goroutines", "1001"}, []string{"-goroutines", "from 1 to 1000"}},
		{[]string{"-work", "1m"}, []string{"-work", "10s"}},
		{[]string{"-work", "-1ms"}, []string{"-work", "10s"}},
		{[]string{"-pause", "-1ms"}, []string{"-pause", "10s"}},
		{[]string{"-pause", "5"}, []string{"-pause", "unit"}},
		{[]string{"-poll", "0s"}, []string{"-poll", "1ms"}},
		{[]string{"-redis", "localhost:6379"}, []string{"-redis", "redis://127.0.0.1:6379/0"}},
		{[]string{"-redis", ""}, []string{"-redis", "embedded"}},
		{[]string{"-json", missing}, []string{"-json", "make it"}},
		{[]string{"-json", filepath.Dir(filepath.Dir(missing))}, []string{"-json", "name of a file"}},
		{[]string{"-quick=perhaps"}, []string{"-quick", "-h"}},
		{[]string{"-clients"}, []string{"-clients", "-h"}},
		{[]string{"-slow"}, []string{"-slow", "-h"}},
		{[]string{"quick"}, []string{`"quick"`, "-h"}},
	}
	for _, test := range tests {
		got := play(t.Context(), t, nil, test.args...)
		if got.code != exitUsage || got.stdout != "" {
			t.Errorf("%q: exit code %d, stdout %q", test.args, got.code, got.stdout)
		}
		for _, want := range test.says {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%q: stderr does not say %q: %s", test.args, want, got.stderr)
			}
		}
	}
}

func TestBadURLIsNotShown(t *testing.T) {
	got := play(t.Context(), t, nil, "-redis", "http://user:secret@host")
	if got.code != exitUsage || strings.Contains(got.stderr, "secret") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
}

func TestFlagDefaults(t *testing.T) {
	full := config{redis: redisAuto, shapes: standardShapes(), duration: 7 * time.Second, poll: 100 * time.Millisecond}
	quick, short, fast := full, full, full
	quick.duration, short.duration, fast.poll = 2*time.Second, time.Second, time.Millisecond
	for _, test := range []struct {
		args string
		want config
	}{
		{"", full}, {"-quick", quick}, {"-quick -duration 1s", short}, {"-duration 1s -quick", short}, {"-poll 1ms", fast},
	} {
		got, err := parseFlags(strings.Fields(test.args), io.Discard)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %+v, %v", test.args, got, err)
		}
	}
}

// A flag that describes a shape leaves only that shape, also when its value is
// the default.
func TestShapeFlagsMakeOneShape(t *testing.T) {
	usual := shape{
		name: "custom", about: "as the flags say",
		clients: 4, goroutines: 4, work: time.Millisecond, pause: 10 * time.Millisecond,
	}
	loop, many, long := usual, usual, usual
	loop.pause, many.clients, many.goroutines, long.work, long.pause = 0, 2, 64, time.Second, time.Minute/10
	for _, test := range []struct {
		args string
		want shape
	}{
		{"-pause 10ms", usual},
		{"-clients 4", usual},
		{"-goroutines 4", usual},
		{"-work 1ms", usual},
		{"-pause 0s -quick", loop},
		{"-clients 2 -goroutines 64", many},
		{"-work 1s -pause 6s", long},
	} {
		got, err := parseFlags(strings.Fields(test.args), io.Discard)
		if err != nil || !slices.Equal(got.shapes, []shape{test.want}) {
			t.Errorf("%q: %+v, %v", test.args, got.shapes, err)
		}
	}
}

func TestHelpListsEveryFlag(t *testing.T) {
	got := play(t.Context(), t, nil, "-h")
	if got.code != exitOK {
		t.Errorf("exit code %d", got.code)
	}
	for _, name := range []string{
		"-redis", "-duration", "-clients", "-goroutines", "-work", "-pause", "-poll", "-quick", "-json", "-list",
	} {
		if !strings.Contains(got.stdout, "\n  "+name+" ") {
			t.Errorf("no %s in:\n%s", name, got.stdout)
		}
	}
}
