package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"
)

// awaitStopped returns once the kernel reports the process as stopped: the
// signal alone takes effect some time after the call that sends it.
func awaitStopped(p *process) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(killGrace)
	for {
		stopped, err := isStopped(p.pid())
		if stopped || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return errors.New("the process ended instead of stopping")
		case <-limit:
			return errors.New("the process did not stop")
		}
	}
}

// isStopped reads the state letter, which follows the program's name in
// parentheses.
func isStopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	_, rest, ok := bytes.Cut(stat, []byte(") "))
	return ok && bytes.HasPrefix(rest, []byte("T")), nil
}
