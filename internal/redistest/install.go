package redistest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// EnvAddr names the environment variable that makes Shared use a running
// server, as host:port, in place of one of its own.
const EnvAddr = "LATCHKEY_REDIS"

// ErrNoServer means that there is no redis-server to start. Its text says how
// to install one.
var ErrNoServer = errors.New(`no redis-server on PATH; install one with
  apt:    sudo apt-get install -y redis-server
  brew:   brew install redis
  docker: docker run --rm -d -p 127.0.0.1:6379:6379 redis:7    (and set ` + EnvAddr + `=127.0.0.1:6379, which serves the tests that need no server of their own)`)

const defaultBinary = "redis-server"

// findServer resolves the program to start.
func findServer(name string) (string, error) {
	if name == "" {
		name = defaultBinary
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("redistest: %w (%w)", ErrNoServer, err)
	}
	return path, nil
}

var versionPattern = regexp.MustCompile(`\bv=(\d+)\.`)

// majorVersion asks the program at path for its version.
func majorVersion(ctx context.Context, path string) (int, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("redistest: %s --version: %w", path, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("redistest: %s --version: no version in %q", path, out)
	}
	major, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return 0, fmt.Errorf("redistest: %s --version: %w", path, err)
	}
	return major, nil
}
