package script_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/script"
)

// rights is the administrator's view of a key, and a user who may do less.
type rights struct {
	*rig
	user *redis.Client
}

// newRights makes a user with these ACL rules. The server must be the test's own.
func newRights(t *testing.T, srv *redistest.Server, rules ...string) rights {
	t.Helper()
	admin := srv.Client(t)
	name := "user" + strings.Join(rules, "")
	if err := admin.ACLSetUser(t.Context(), name, append([]string{"reset", "on", ">secret"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
	user := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" })
	return rights{rig: rigOn(admin, "app:lock"), user: user}
}

// checkRefusal checks that an error is the server's and will not pass.
func checkRefusal(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !script.Answered(err) || script.Passing(err) || script.NotSent(err) || script.WrongType(err) {
		t.Errorf("%s: %v, want a refusal of the server that does not pass", what, err)
	}
}

// TestNoChannelRight: the release is done, and the reply says what was refused.
func TestNoChannelRight(t *testing.T) {
	t.Parallel()
	r := newRights(t, redistest.New(t, redistest.Config{}), "~*", "+@all", "resetchannels")
	start := r.set(t, state{fields(mine, "2"), longer})
	messages := r.published(t, func() {
		lowered, err := r.toRelease(2).Send(t.Context(), r.user)
		if err != nil || lowered.Code != script.Lowered || lowered.Refusal != "" {
			t.Errorf("an inner hold: %+v, %v", lowered, err)
		}
		freed, err := r.toRelease(1).Send(t.Context(), r.user)
		if err != nil || freed.Code != script.Released || freed.Receivers != -1 || !strings.Contains(freed.Refusal, "publish") {
			t.Errorf("%+v, %v; want a release with the refusal in it", freed, err)
		}
	})
	if len(messages) > 0 {
		t.Errorf("published %q", messages)
	}
	r.check(t, state{}, start)
}

// TestNoExpiryRight: a lock without a TTL would block everybody for ever, so
// there is no lock at all.
func TestNoExpiryRight(t *testing.T) {
	t.Parallel()
	for _, missing := range [][]string{{"-pexpire"}, {"-pexpire", "-del"}, {"-pexpire", "-hdel"}} {
		r := newRights(t, redistest.New(t, redistest.Config{}), append([]string{"~*", "&*", "+@all"}, missing...)...)
		_, err := script.Acquire{Key: r.key, Owner: mine, Depth: 1, Lease: lease}.Send(t.Context(), r.user)
		checkRefusal(t, "acquire", err)
		if ttl := r.rdb.PTTL(t.Context(), r.key).Val(); ttl != -2 {
			t.Errorf("without %v: a refused acquire left a key, PTTL %v", missing, ttl)
		}
	}
}

// TestNoExpiryRightHeld: for whoever has a lock already.
func TestNoExpiryRightHeld(t *testing.T) {
	t.Parallel()
	r := newRights(t, redistest.New(t, redistest.Config{}), "~*", "&*", "+@all", "-pexpire")
	start := r.set(t, state{fields(mine, "2"), shorter})
	_, err := script.Acquire{Key: r.key, Owner: mine, Depth: 3, Lease: lease}.Send(t.Context(), r.user)
	checkRefusal(t, "re-entry", err)
	_, err = r.toRelease(2).Send(t.Context(), r.user)
	checkRefusal(t, "release of an inner hold", err)
	codes, _, err := script.Renew(t.Context(), r.user, []script.Renewal{
		{Key: r.key, Owner: mine, Lease: lease}, {Key: r.key, Owner: mine, Lease: shorter / 2},
	})
	if err != nil || codes[0] != script.RenewFailed || codes[1] != script.Renewed {
		t.Errorf("renewals: %v, %v; want one failed and one with nothing to do", codes, err)
	}
	r.check(t, state{fields(mine, "2"), shorter}, start)
	if reply, err := r.toRelease(1).Send(t.Context(), r.user); err != nil || reply.Code != script.Released {
		t.Errorf("release: %+v, %v", reply, err)
	}
	r.check(t, state{}, start)
}

// Calls that a user lacks a right for.

func acquireOf(depth int) func(context.Context, rights) error {
	return func(ctx context.Context, r rights) error {
		_, err := script.Acquire{Key: r.key, Owner: mine, Depth: depth, Lease: lease, Predecessors: []string{ghost1}}.Send(ctx, r.user)
		return err
	}
}

func releaseOf(depth int) func(context.Context, rights) error {
	return func(ctx context.Context, r rights) error {
		_, err := r.toRelease(depth).Send(ctx, r.user)
		return err
	}
}

func renewIt(ctx context.Context, r rights) error {
	_, _, err := script.Renew(ctx, r.user, []script.Renewal{{Key: r.key, Owner: mine, Lease: lease}})
	return err
}

func infoOf(ctx context.Context, r rights) error {
	_, err := script.Info(ctx, r.user, r.key)
	return err
}

// TestMissingCommand takes one command after the other from a user: whatever a
// script lacks, it fails and leaves everything as it was.
func TestMissingCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	var (
		free   = state{}
		once   = state{fields(mine, "1"), longer}
		twice  = state{fields(mine, "2"), longer}
		ghosts = state{fields(ghost1, "1", theirs, "1"), shorter}
	)
	for _, c := range []struct {
		missing, what string
		before        state
		send          func(context.Context, rights) error
	}{
		{"time", "acquire", free, acquireOf(1)},
		{"hexists", "acquire", free, acquireOf(1)},
		{"hdel", "acquire", ghosts, acquireOf(1)},
		{"exists", "acquire", free, acquireOf(1)},
		{"pttl", "re-entry", once, acquireOf(2)},
		{"hset", "acquire", free, acquireOf(1)},
		{"hget", "re-entry", once, acquireOf(2)},
		{"hset", "re-entry", once, acquireOf(2)},
		{"evalsha", "acquire", free, acquireOf(1)},
		{"time", "release", once, releaseOf(1)},
		{"hexists", "release", once, releaseOf(1)},
		{"del", "release", once, releaseOf(1)},
		{"pttl", "release of an inner hold", twice, releaseOf(2)},
		{"hget", "release of an inner hold", twice, releaseOf(2)},
		{"hset", "release of an inner hold", twice, releaseOf(2)},
		{"time", "renewal", once, renewIt},
		{"hgetall", "info", once, infoOf},
		{"pttl", "info", once, infoOf},
		{"evalsha", "info", once, infoOf},
	} {
		r := newRights(t, srv, "~*", "&*", "+@all", "-"+c.missing)
		start := r.set(t, c.before)
		checkRefusal(t, c.what+" without "+c.missing, c.send(t.Context(), r))
		r.check(t, c.before, start)
	}
}

// TestRenewalWithoutRights: what the server refuses to tell is not a loss.
func TestRenewalWithoutRights(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	for _, missing := range []string{"-hexists", "-pttl", "-pexpire"} {
		r := newRights(t, srv, "~*", "&*", "+@all", missing)
		start := r.set(t, state{fields(mine, "1"), shorter})
		codes, _, err := script.Renew(t.Context(), r.user, []script.Renewal{{Key: r.key, Owner: mine, Lease: lease}})
		if err != nil || codes[0] != script.RenewFailed {
			t.Errorf("%s: %v, %v; want failed", missing, codes, err)
		}
		r.check(t, state{fields(mine, "1"), shorter}, start)
	}
}

// TestKeyPatterns: a key outside of a user's patterns is NOPERM and untouched,
// one within them is served, and a batch with one foreign key fails as a whole.
func TestKeyPatterns(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, redistest.Config{})
	inside := newRights(t, srv, "~app:*", "&*", "+@all")
	outside := rights{rig: rigOn(inside.rdb, "other:lock"), user: inside.user}
	ctx := t.Context()
	acquire := func(r rights) error {
		_, err := script.Acquire{Key: r.key, Owner: mine, Depth: 1, Lease: lease}.Send(ctx, r.user)
		return err
	}
	if err := acquire(inside); err != nil {
		t.Errorf("inside: %v", err)
	}
	free := outside.set(t, state{})
	if err := acquire(outside); !redis.IsPermissionError(err) {
		t.Errorf("outside: %v, want NOPERM", err)
	}
	outside.check(t, state{}, free)

	start := outside.set(t, state{fields(mine, "1"), shorter})
	_, err := outside.toRelease(1).Send(ctx, outside.user)
	checkRefusal(t, "release outside", err)
	_, err = script.Info(ctx, outside.user, outside.key)
	checkRefusal(t, "info outside", err)
	inside.set(t, state{fields(mine, "1"), shorter})
	_, _, err = script.Renew(ctx, inside.user, []script.Renewal{
		{Key: inside.key, Owner: mine, Lease: lease}, {Key: outside.key, Owner: mine, Lease: lease},
	})
	checkRefusal(t, "a batch with a key outside", err)
	outside.check(t, state{fields(mine, "1"), shorter}, start)
	inside.check(t, state{fields(mine, "1"), shorter}, start)
}
