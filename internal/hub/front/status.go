package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/hub/upstream"
)

// retryAfter is the pause, in seconds, before a client may retry. client-go retries ten times, so for 10 s. A link that does not
// heal within seconds usually stays down for longer anyway.
const retryAfter = 1

func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// again asks the client to retry.
func again(s *metav1.Status) *metav1.Status {
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return s
}

func forbidden(reason string) *metav1.Status {
	return failure(http.StatusForbidden, metav1.StatusReasonForbidden, reason)
}

func unauthorized(reason string) *metav1.Status {
	return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, reason)
}

func internalError() *metav1.Status {
	return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"yurthub failed at this request; its log says how")
}

func tooMany(c class) *metav1.Status {
	return again(failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		fmt.Sprintf("yurthub has too many %v requests in flight; try again later", c)))
}

func tooManyOfYours(c class) *metav1.Status {
	return again(failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		fmt.Sprintf("yurthub: you have too many %v requests in flight; end some, or try again later", c)))
}

// tooMuchUnproven is for a caller whose token the cloud has not accepted.
func tooMuchUnproven() *metav1.Status {
	return again(failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, fmt.Sprintf(
		"yurthub: the cloud has not accepted this token yet: until then, send %d requests a second at most, of %d KiB at most",
		mostUnproven/int(unprovenTime/time.Second), BodyBytes>>10)))
}

// unanswered returns the Status for a request without an answer. The parameter read says that the request changes nothing, so
// that the client may always retry it.
func unanswered(err error, read bool) *metav1.Status {
	harmless := read || upstream.NotSent(err) || errors.Is(err, errNodeRefused)
	var s *metav1.Status
	switch {
	case errors.Is(err, errNodeRefused):
		s = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "yurthub: "+err.Error())
	case errors.Is(err, upstream.ErrDown) && harmless, errors.Is(err, upstream.ErrNotRunning):
		s = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "yurthub: "+err.Error())
	case errors.Is(err, upstream.ErrDown), errors.Is(err, context.DeadlineExceeded):
		s = failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "yurthub: no answer in time: "+err.Error())
	default:
		s = failure(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "yurthub: no answer: "+err.Error())
	}
	if !harmless {
		s.Message += " (the server may have acted on the request)"
		return s
	}
	return again(s)
}

// writeStatus answers with s.
func writeStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	body, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Errorf("encode a Status: %w", err)) // strings and numbers cannot fail
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-cache, private")
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(s.Code))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client is gone
	}
}
