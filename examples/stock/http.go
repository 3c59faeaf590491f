package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/rlock"
)

// statusGone is what the log says when the customer hung up (nginx has the
// number); nobody reads the answer.
const statusGone = 499

// Handler serves
//
//	GET  /stock/{item}
//	PUT  /stock/{item}?n=100
//	POST /stock/{item}/reserve?n=1&for=customer
//
// and tells logger of the requests that failed through no fault of the customer.
func Handler(s *Stock, logger *slog.Logger) http.Handler {
	h := &handler{stock: s, logger: logger}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stock/{item}", h.left)
	mux.HandleFunc("PUT /stock/{item}", h.put)
	mux.HandleFunc("POST /stock/{item}/reserve", h.reserve)
	return mux
}

type handler struct {
	stock  *Stock
	logger *slog.Logger
}

func (h *handler) left(w http.ResponseWriter, r *http.Request) {
	n, err := h.stock.Left(r.Context(), r.PathValue("item"))
	h.answer(w, r, n, err)
}

func (h *handler) put(w http.ResponseWriter, r *http.Request) {
	n, ok := number(w, r, 0)
	if !ok {
		return
	}
	h.answer(w, r, n, h.stock.Put(r.Context(), r.PathValue("item"), n))
}

func (h *handler) reserve(w http.ResponseWriter, r *http.Request) {
	n, ok := number(w, r, 1)
	if !ok {
		return
	}
	left, err := h.stock.Reserve(r.Context(), r.PathValue("item"), r.FormValue("for"), n)
	h.answer(w, r, left, err)
}

// number reads n from the request, or answers that it is wrong.
func number(w http.ResponseWriter, r *http.Request, least int) (n int, ok bool) {
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || n < least {
		http.Error(w, "n: want a number, at least "+strconv.Itoa(least), http.StatusBadRequest)
		return 0, false
	}
	return n, true
}

func (h *handler) answer(w http.ResponseWriter, r *http.Request, left int, err error) {
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"left": left})
		return
	}
	code, retry := status(err)
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((retry+time.Second-1)/time.Second)))
	}
	if code >= http.StatusInternalServerError || code == statusGone {
		h.logger.WarnContext(r.Context(), "request failed",
			slog.String("path", r.URL.Path), slog.Int("code", code), slog.Any("err", err))
	}
	http.Error(w, http.StatusText(code)+": "+err.Error(), code)
}

// status says which answer an error is, and how long the customer should wait
// before the next attempt, 0 for unknown.
func status(err error) (code int, retry time.Duration) {
	switch {
	case errors.Is(err, errNoItem):
		return http.StatusNotFound, 0
	case errors.Is(err, errSoldOut):
		return http.StatusConflict, 0
	case errors.Is(err, rlock.ErrNotAcquired):
		return http.StatusServiceUnavailable, retryBusy(err)
	case errors.Is(err, rlock.ErrClosed):
		return http.StatusServiceUnavailable, time.Second // this instance goes; another one will answer
	case errors.Is(err, rlock.ErrLost) && errors.Is(err, errUnchanged):
		return http.StatusServiceUnavailable, time.Second
	case errors.Is(err, rlock.ErrLost):
		return http.StatusInternalServerError, 0 // written, perhaps over somebody else's number: for a human
	case errors.Is(err, context.Canceled):
		return statusGone, 0
	case errors.Is(err, errUnchanged):
		return http.StatusServiceUnavailable, time.Second // Redis failed
	default:
		return http.StatusInternalServerError, 0
	}
}

// retryBusy is the pause for a lock that is busy, not broken. RetryAfter is how
// long a holder that died would block us: an upper bound, as much as a whole
// lease. A living one is done much sooner, so it only caps a short random pause.
func retryBusy(err error) time.Duration {
	retry := time.Second + rand.N(2*time.Second)
	if lockErr, ok := errors.AsType[*rlock.LockError](err); ok && lockErr.RetryAfter > 0 {
		retry = min(retry, lockErr.RetryAfter)
	}
	return retry
}
