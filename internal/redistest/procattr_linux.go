package redistest

import "syscall"

// procAttr makes the kernel kill the server when the thread that started it
// ends, which process.supervise ties to the end of this process. It also puts the
// server into a process group of its own: Ctrl-C in a terminal reaches a whole
// group, and a server that it ended could not be used by who tidies up after it.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
