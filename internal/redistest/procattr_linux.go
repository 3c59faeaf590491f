package redistest

import "syscall"

// procAttr makes the kernel kill the server when the thread that started it
// ends, which process.supervise ties to the end of this process.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
