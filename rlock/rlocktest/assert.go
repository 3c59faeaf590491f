package rlocktest

import (
	"context"
	"strings"

	"github.com/latchkey-go/latchkey/rlock"
)

// Acquired returns how often Client has acquired the lock of this name, as
// Redis granted it. A re-entry is not counted, nor is an occupation. What was
// granted to a Lock whose context ended meanwhile counts, here and as released:
// the client gives it back in the background.
func (k *Kit) Acquired(name string) int { return k.ledger.of(k.prefix + name).acquired }

// Released returns how often Client has freed the lock of this name: by the
// Unlock of the last open hold, in the background, or by ForceUnlock of its own
// lock. A lock that Kit.Lose took away or whose lease ran out was not released.
func (k *Kit) Released(name string) int { return k.ledger.of(k.prefix + name).released }

// Held returns the names of the locks that Client holds in Redis now, sorted.
func (k *Kit) Held() []string {
	k.tb.Helper()
	var names []string
	for _, key := range k.ledger.open() {
		name := strings.TrimPrefix(key, k.prefix)
		if k.ours(k.look(name).Owner) {
			names = append(names, name)
		}
	}
	return names
}

// AssertHeld is an error of the test unless Client holds the lock of this name
// in Redis now.
func (k *Kit) AssertHeld(name string) {
	k.tb.Helper()
	if now := k.look(name); !k.ours(now.Owner) {
		k.tb.Errorf("rlocktest: lock %q is %s, want it held by Client", name, k.describe(now))
	}
}

// AssertFree is an error of the test if anybody holds the lock of this name in
// Redis now.
func (k *Kit) AssertFree(name string) {
	k.tb.Helper()
	if now := k.look(name); now.Held {
		k.tb.Errorf("rlocktest: lock %q is %s, want it free", name, k.describe(now))
	}
}

// AssertReleased is an error of the test unless Client has acquired the lock of
// this name at least once, and has released it as often (see Acquired and
// Released). Somebody else may have it by now.
func (k *Kit) AssertReleased(name string) {
	k.tb.Helper()
	a := k.ledger.of(k.prefix + name)
	switch held := k.ours(k.look(name).Owner); {
	case a.acquired == 0:
		k.tb.Errorf("rlocktest: lock %q was never acquired by Client, want it acquired and released", name)
	case a.released == a.acquired:
	case held:
		k.tb.Errorf("rlocktest: lock %q is still held by Client (acquired %d times, released %d times)",
			name, a.acquired, a.released)
	default:
		k.tb.Errorf("rlocktest: lock %q was acquired %d times and released %d times: it was lost, or its lease ran out",
			name, a.acquired, a.released)
	}
}

// look asks Redis who holds a lock, past what Fail has broken. A failure ends
// the test.
func (k *Kit) look(name string) rlock.Info {
	k.tb.Helper()
	info, err := k.others.NewRLock(name).Info(context.Background())
	if err != nil {
		k.tb.Fatalf("rlocktest: %v", err)
	}
	return info
}

// ours reports whether an owner id is one of Client's.
func (k *Kit) ours(owner string) bool { return strings.HasPrefix(owner, k.ledger.prefix) }

// describe says who holds a lock.
func (k *Kit) describe(now rlock.Info) string {
	switch {
	case !now.Held:
		return "free"
	case k.ours(now.Owner):
		return "held by Client"
	default:
		return "held by another owner"
	}
}
