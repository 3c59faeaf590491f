//go:build !unix

package redistest

import "syscall"

// procAttr sets nothing: process groups and parent-death signals are unknown
// here. A server whose parent was killed stays until it is ended by hand.
func procAttr() *syscall.SysProcAttr { return nil }
