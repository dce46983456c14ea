// Package instead answers in the place of a server that has none: it does not answer, or with 502, 503 or 504, as a balancer
// without servers does.
package instead

import (
	"maps"
	"net/http"
)

// Writer is where a server's answer goes, unless another can be given instead.
type Writer struct {
	http.ResponseWriter
	// Unauthorized says that 401 is no answer either: the request was made as the node, and its programs know nothing of its
	// certificate. Others are to hear of theirs.
	Unauthorized bool
	// Elsewhere says that the server has the answer from another, as an API server has that of an aggregated API. Then 502,
	// 503 and 504 are answers: the other one is down, and what it said last is not so any more.
	Elsewhere bool
	// Answer gives the other answer, or returns false and has written nothing.
	Answer func(http.ResponseWriter) bool

	// answered: the server's answer has begun; replaced: it is not wanted.
	answered, replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	if w.answered {
		return
	}
	if status < http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.answered = true
	if Unanswered(status) && !w.Elsewhere || status == http.StatusUnauthorized && w.Unauthorized {
		h := w.Header()
		theirs := maps.Clone(h)
		clear(h)
		if w.replaced = w.Answer(w.ResponseWriter); w.replaced {
			return
		}
		clear(h)
		maps.Copy(h, theirs)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unanswered reports whether a status says that there is no answer.
func Unanswered(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(p []byte) (int, error) {
	if !w.answered {
		w.WriteHeader(http.StatusOK)
	}
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
