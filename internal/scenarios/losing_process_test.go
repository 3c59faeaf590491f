//go:build scenarios

package scenarios_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// A process that was killed and started again is somebody else: it waits for
// the lease of its former life like everybody.
func TestB043ARestartedProcessIsNotItsFormerSelf(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	r := newRig(t)
	lock := r.lock(rlock.Options{Lease: lease}) // also looks for what is left
	first := start(t, "holder", r.Addr(), lease)
	before, _ := first.mustLock(r.name)
	held := r.ttl()
	read := time.Now()
	first.kill()

	second := start(t, "holder", r.Addr(), lease)
	after, at := second.mustLock(r.name)
	// PTTL was counted down from before read on.
	if early := held - at.Sub(read); early > 10*time.Millisecond {
		t.Errorf("the new process came in %v before the lease of the old one ended", early)
	}
	if client(before) == client(after) {
		t.Errorf("both lives have the client id %s", client(before))
	}
	if fields := r.fields(); len(fields) != 1 || fields[after] != "1" {
		t.Errorf("in Redis there is %v, want %s = 1 alone", fields, after)
	}
	v := r.watch(r.name, after, lock)
	pass(2 * lease)
	v.wantRenewed(lease)
	if got := second.ask("unlock", r.name); got[0] != "ok" {
		t.Errorf("Unlock: %q", got)
	}
}

// client is the client's half of an owner id.
func client(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return id
}
