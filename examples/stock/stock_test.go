package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
	"github.com/latchkey-go/latchkey/rlock/rlocktest"
)

func TestHammerGoroutines(t *testing.T) {
	const pieces = 1500
	r := newRig(t, pieces)
	var urls []string
	for range 4 {
		_, srv := r.instance(t, rlock.Options{})
		urls = append(urls, srv.URL)
	}
	r.hammer(t, urls, pieces, 40)
}

// hammer lets customers reserve at all instances until the item is sold out.
func (r *rig) hammer(t *testing.T, urls []string, pieces, customers int) {
	t.Helper()
	var sold atomic.Int64
	var wg sync.WaitGroup
	for c := range customers {
		wg.Go(func() {
			for i := c; ; i++ {
				n := 1 + i%2
				got := r.reserve(t.Context(), urls[i%len(urls)], "c"+strconv.Itoa(c), n)
				switch {
				case got.code == http.StatusOK:
					if sold.Add(int64(n)) > int64(pieces) {
						return // and fails below
					}
				case got.code == http.StatusConflict && n == 1:
					return
				case got.code == http.StatusConflict: // perhaps one piece is left
				case got.code == http.StatusServiceUnavailable && got.retry != "":
				default:
					t.Errorf("%+v", got)
					return
				}
			}
		})
	}
	wg.Wait()
	if sold.Load() != int64(pieces) {
		t.Errorf("%d pieces were sold, want %d", sold.Load(), pieces)
	}
	r.check(t, 0, pieces)
}

// TestHangUp: customers who hang up at any moment do not tear the stock and the
// reservations apart.
func TestHangUp(t *testing.T) {
	const pieces = 1000
	r := newRig(t, pieces)
	s, srv := r.instance(t, rlock.Options{})
	var hungUp atomic.Int64
	var wg sync.WaitGroup
	for c := range 20 {
		wg.Go(func() {
			for i := range 20 {
				patience := time.Duration(1+(c*7+i*3)%100) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if got := r.reserve(ctx, srv.URL, "x", 1); got.code == 0 {
					hungUp.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if err := s.locks.Shutdown(t.Context()); err != nil { // waits for those inside
		t.Fatal(err)
	}
	if hungUp.Load() == 0 {
		t.Error("nobody hung up, so this test shows nothing")
	}
	if left, reserved := r.counts(t); left+reserved != pieces {
		t.Errorf("left %d, reserved %d; want %d together", left, reserved, pieces)
	}
}

// TestHangUpInside: under the lock the customer's end cuts nothing.
func TestHangUpInside(t *testing.T) {
	r := newRig(t, 10)
	s, _ := r.instance(t, rlock.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s.beforeWrite = func(context.Context, string) { cancel() }
	if left, err := s.Reserve(ctx, r.item, "x", 1); left != 9 || err != nil {
		t.Errorf("left %d, %v", left, err)
	}
	r.check(t, 9, 1)
}

// TestBusy: who waited in vain is told when to come again.
func TestBusy(t *testing.T) {
	r := newRig(t, 10)
	other, _ := r.instance(t, rlock.Options{})
	s, srv := r.instance(t, rlock.Options{})
	s.wait = 100 * time.Millisecond
	h, err := other.lock(r.item).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Unlock(t.Context())
	got := r.reserve(t.Context(), srv.URL, "x", 1)
	if sec, err := strconv.Atoi(got.retry); got.code != http.StatusServiceUnavailable || err != nil || sec < 1 || sec > 3 {
		t.Errorf("%+v, want 503 and a Retry-After of 1 to 3 seconds", got)
	}
	r.check(t, 10, 0)
}

// TestLostByDelete: the lock's key is deleted while an instance is between GET
// and SET, and another one goes in.
func TestLostByDelete(t *testing.T) {
	r := newRig(t, 10)
	a, srvA := r.instance(t, rlock.Options{Lease: 900 * time.Millisecond})
	_, srvB := r.instance(t, rlock.Options{})
	a.beforeWrite = func(ctx context.Context, item string) {
		outside := rlock.WithoutHolds(context.WithoutCancel(ctx))
		if err := r.rdb.Del(outside, lockName(item)).Err(); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, rlock.ErrLost) {
			t.Errorf("the work ended by %v, want ErrLost", cause)
		}
		if got := r.reserve(outside, srvB.URL, "b", 3); got.code != http.StatusOK {
			t.Errorf("the other instance: %+v", got)
		}
	}
	if got := r.reserve(t.Context(), srvA.URL, "a", 5); got.code != http.StatusServiceUnavailable {
		t.Errorf("%+v, want 503", got)
	}
	r.check(t, 7, 3)
}

// TestWithKit needs no Redis, and its waiting takes no time.
func TestWithKit(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		prepare func(*rlocktest.Kit)
		want    error
		lasts   time.Duration
	}{
		"busy":   {func(k *rlocktest.Kit) { k.Occupy(lockName("kit")) }, rlock.ErrNotAcquired, 2 * time.Second},
		"down":   {func(k *rlocktest.Kit) { k.Fail(down) }, down, 2 * time.Second},
		"closed": {func(k *rlocktest.Kit) { _ = k.Client().Close() }, rlock.ErrClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kit := rlocktest.New(t, rlock.Options{})
				s := &Stock{locks: kit.Client(), wait: 2 * time.Second, work: time.Second}
				c.prepare(kit)
				start := time.Now()
				_, err := s.Reserve(t.Context(), "kit", "x", 1)
				if !errors.Is(err, c.want) || !errors.Is(err, errUnchanged) || time.Since(start) != c.lasts {
					t.Errorf("after %v: %v, want %v after %v", time.Since(start), err, c.want, c.lasts)
				}
				var log output
				w := httptest.NewRecorder()
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/stock/kit/reserve?n=1", nil)
				Handler(s, slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(w, req)
				if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
					t.Errorf("answer %d, headers %v", w.Code, w.Header())
				}
				if !strings.Contains(log.String(), "code=503") {
					t.Errorf("the log says %q", &log)
				}
			})
		})
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err   error
		code  int
		retry bool
	}{
		{errNoItem, http.StatusNotFound, false},
		{errSoldOut, http.StatusConflict, false},
		{rlock.ErrNotAcquired, http.StatusServiceUnavailable, true},
		{rlock.ErrClosed, http.StatusServiceUnavailable, true},
		{errors.Join(rlock.ErrLost, errUnchanged), http.StatusServiceUnavailable, true},
		{rlock.ErrLost, http.StatusInternalServerError, false},
		{errors.Join(context.Canceled, errUnchanged), statusGone, false},
		{errors.Join(errors.New("no answer"), errUnchanged), http.StatusServiceUnavailable, true},
		{errors.New("no answer"), http.StatusInternalServerError, false},
	} {
		if code, retry := status(&rlock.LockError{Err: c.err}); code != c.code || (retry > 0) != c.retry {
			t.Errorf("%v: %d, Retry-After %v; want %d, %v", c.err, code, retry, c.code, c.retry)
		}
	}
	if retry := retryBusy(&rlock.LockError{RetryAfter: time.Millisecond}); retry != time.Millisecond {
		t.Errorf("Retry-After %v, and the lock is free in 1ms", retry)
	}
}
