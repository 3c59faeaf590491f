//go:build unix && !linux

package redistest

import "syscall"

// procAttr puts the server into a process group of its own: Ctrl-C in a terminal
// reaches a whole group, and a server that it ended could not be used by who
// tidies up after it. Only Linux also signals a child when its parent dies:
// here a server whose parent ended without Stop stays until it is ended by hand.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
