//go:build scenarios

package scenarios_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestMain makes the test binary either the tests or, when one of these has
// started it again, the helper process that it is asked to be.
func TestMain(m *testing.M) {
	runProgram()
	redistest.Main(m)
}
