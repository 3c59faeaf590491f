package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/pubsub"
)

// limitedHub returns a hub whose user has the right to the channels good*.
func limitedHub(t *testing.T, srv *server, admin *redis.Client) *pubsub.Hub {
	t.Helper()
	grant(t, admin, "on", ">secret", "~*", "+@all", "resetchannels", "&good*")
	return newHub(t, srv.client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" }), pubsub.Options{})
}

func grant(t *testing.T, admin *redis.Client, rules ...string) {
	t.Helper()
	if err := admin.ACLSetUser(t.Context(), "limited", rules...).Err(); err != nil {
		t.Fatal(err)
	}
}

func mustBeRefused(t *testing.T, h *pubsub.Hub, channel string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := h.Subscribe(ctx, channel)
	if s != nil || !redis.IsPermissionError(err) || !strings.Contains(err.Error(), channel) {
		t.Errorf("Subscribe(%q) = %v, %v", channel, s, err)
	}
}

func TestForbiddenChannelIsRefusedAlone(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := limitedHub(t, srv, admin)
	good := mustSubscribe(t, h, "good")
	mustBeRefused(t, h, "bad")
	drain(good)
	killSubscribers(t, admin)
	mustWake(t, good, "re-subscription beside a refused channel")
	mustWakeOnPublish(t, admin, good, "good")

	grant(t, admin, "&bad")
	bad := mustSubscribe(t, h, "bad")
	mustWakeOnPublish(t, admin, bad, "bad")

	// The server closes a connection that loses a right. On the next one both
	// are named in one command, which is refused as a whole.
	drain(good)
	grant(t, admin, "resetchannels", "&good*")
	mustWake(t, bad, "revoked right")
	eventually(t, "the revoked channel ends", func() bool { return redis.IsPermissionError(bad.Err()) })
	mustWake(t, good, "re-subscription beside a revoked channel")
	if good.Err() != nil || bad.Confirmed() {
		t.Errorf("good: %v; bad is confirmed: %v", good.Err(), bad.Confirmed())
	}
	mustWakeOnPublish(t, admin, good, "good")
	bad.Close()
	if !redis.IsPermissionError(bad.Err()) {
		t.Errorf("Close changed the reason of the end to %v", bad.Err())
	}
}

// Channels that are subscribed at the same moment share a command.
func TestForbiddenChannelsAmongMany(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := limitedHub(t, srv, admin)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			if i%20 == 7 {
				mustBeRefused(t, h, fmt.Sprint("bad", i))
				return
			}
			s, err := h.Subscribe(context.Background(), fmt.Sprint("good", i))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if n, err := admin.Publish(context.Background(), fmt.Sprint("good", i), "").Result(); n != 1 || err != nil {
				t.Errorf("good%d: %d receivers, %v", i, n, err)
			}
		})
	}
	wg.Wait()
}

// A forbidden UNSUBSCRIBE leaves a channel subscribed, and usable.
func TestForbiddenUnsubscribe(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	grant(t, admin, "on", ">secret", "~*", "+@all", "-unsubscribe", "-ping", "allchannels")
	rdb := srv.client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
	h := newHub(t, rdb, pubsub.Options{Linger: 1, PingEvery: 1})
	steady := mustSubscribe(t, h, "steady")
	before := subscribers(t, admin)
	for range 100 {
		s := mustSubscribe(t, h, "ch")
		mustWakeOnPublish(t, admin, s, "ch")
		s.Close()
		mustWakeOnPublish(t, admin, steady, "steady")
	}
	if after := subscribers(t, admin); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("connections %v became %v", before, after)
	}
}

func TestWrongPasswordIsReturnedAtOnce(t *testing.T) {
	srv := startServer(t, "--requirepass", "secret")
	for _, password := range []string{"", "wrong"} {
		h := newHub(t, srv.client(t, func(o *redis.Options) { o.Password = password }), pubsub.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := h.Subscribe(ctx, "ch"); !redis.IsAuthError(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("password %q: %v", password, err)
		}
		cancel()
	}
}

// A change of the password that the client catches up with is survived.
func TestEstablishedSubscriptionSurvivesRefusedLogin(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(t, nil)
	h := limitedHub(t, srv, admin)
	s := mustSubscribe(t, h, "good")
	grant(t, admin, "resetpass", ">other")
	killSubscribers(t, admin)
	eventually(t, "the login is refused", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := h.Subscribe(ctx, "good2")
		return redis.IsAuthError(err)
	})
	if s.Err() != nil || s.Confirmed() {
		t.Errorf("Err %v, Confirmed %v", s.Err(), s.Confirmed())
	}
	grant(t, admin, ">secret")
	mustWake(t, s, "re-subscription after the password is back")
}

func TestUnknownCommand(t *testing.T) {
	srv := startServer(t, writeConfig(t, "rename-command SUBSCRIBE \"\"\n"))
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := h.Subscribe(ctx, "ch")
	if _, ok := errors.AsType[redis.Error](err); !ok || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("Subscribe: %v", err)
	}
}

// Busy is not refused: the connection is made again until the script ends.
func TestBusyServer(t *testing.T) {
	srv := startServer(t, "--busy-reply-threshold", "10")
	admin := srv.client(t, nil)
	h := newHub(t, srv.client(t, nil), pubsub.Options{})
	s := mustSubscribe(t, h, "ch")
	script := make(chan error)
	go func() { script <- srv.client(t, nil).Eval(context.Background(), "while true do end", nil).Err() }()
	eventually(t, "the server is busy", func() bool {
		return redis.HasErrorPrefix(admin.Ping(t.Context()).Err(), "BUSY")
	})
	subscribed := make(chan error)
	go func() {
		s, err := h.Subscribe(context.Background(), "ch2")
		if err == nil {
			s.Close()
		}
		subscribed <- err
	}()
	eventually(t, "the refused connection is given up", func() bool { return !s.Confirmed() })
	if err := admin.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-script; err == nil {
		t.Error("the script was not killed")
	}
	if err := <-subscribed; err != nil {
		t.Error(err)
	}
	mustWake(t, s, "re-subscription after BUSY")
}
