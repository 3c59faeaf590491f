package latchkey_test

import (
	"os"
	"strings"
	"testing"
)

// The README's first program is one that compiles: examples/quickstart.
func TestReadmeShowsTheQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(program), "\npackage main")
	if !found {
		t.Fatal("examples/quickstart/main.go has no package clause after its comment")
	}
	if !strings.Contains(string(readme), "```go\npackage main"+code+"```") {
		t.Error("README.md does not show examples/quickstart/main.go as it is")
	}
}
