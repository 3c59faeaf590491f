package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// Main is the body of a TestMain: it runs the tests, stops the server of Shared,
// fails a run that passed but left a goroutine behind, and exits. The options
// are for goroutines that are known and meant to stay.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	os.Exit(run(m, os.Stderr, opts))
}

// run returns the exit code of Main. The leak check comes last because the
// shared server has a goroutine of its own until it is stopped, and only after
// a success, since a failed test leaves goroutines that explain nothing.
func run(m interface{ Run() int }, stderr io.Writer, opts []goleak.Option) int {
	code := m.Run()
	err := shared.stop(context.Background())
	if code == 0 {
		err = errors.Join(err, findLeaks(opts))
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "redistest:", err)
		return max(code, 1)
	}
	return code
}

// go-redis leaves a goroutine that tries to dial after a pool could not, and
// that looks only once a second, and after each dial (5 s by default), whether
// its pool was closed.
const (
	slowGoroutine = "pool.(*ConnPool).tryDial"
	slowLimit     = 7 * time.Second
)

// findLeaks reports the goroutines that are left. It waits a little for those
// that are about to end, and slowLimit for slowGoroutine.
func findLeaks(opts []goleak.Option) error {
	var err error
	poll(slowLimit, func() bool {
		err = goleak.Find(opts...)
		return err == nil || !strings.Contains(err.Error(), slowGoroutine)
	})
	return err
}
