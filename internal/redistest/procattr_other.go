//go:build !linux

package redistest

import "syscall"

// procAttr sets nothing: only Linux signals a child when its parent dies. A
// server whose parent was killed stays until it is ended by hand.
func procAttr() *syscall.SysProcAttr { return nil }
