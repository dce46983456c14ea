package front

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// answerable reports whether the hub can answer a request. HEAD, OPTIONS and a malformed timeout get the API server's own answer.
func answerable(r *http.Request) bool {
	if r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return false
	}
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return true
	}
	timeout := r.URL.Query().Get("timeout")
	_, err := time.ParseDuration(timeout)
	return timeout == "" || err == nil
}

// assumedIdentity returns the name of a header by which the caller claims another identity; empty if there is none.
func assumedIdentity(h http.Header) string {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			return name
		}
	}
	return ""
}

// isLongRunning reports whether a request may last as long as its caller wants.
func isLongRunning(info *request.RequestInfo, r *http.Request) bool {
	if info.Verb == "watch" || info.Verb == "proxy" || len(r.Header["Upgrade"]) > 0 {
		return true
	}
	switch info.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return true
	case "log":
		follow, err := strconv.ParseBool(r.URL.Query().Get("follow"))
		return err == nil && follow
	}
	return false
}

// within bounds the time of a request, even if it hangs in reading from or writing to its client.
func (f *Front) within(w http.ResponseWriter, r *http.Request) (*http.Request, func()) {
	ctx, cancel := context.WithTimeout(r.Context(), f.timeout)
	stop := context.AfterFunc(ctx, func() {
		if !timedOut(ctx) {
			return // the client is gone already
		}
		deadlines := http.NewResponseController(w)
		_ = deadlines.SetReadDeadline(time.Unix(1, 0))              // only writers in tests don't support it, and they don't hang
		_ = deadlines.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // it is real time
	})
	return r.WithContext(ctx), func() {
		late := !stop() && timedOut(ctx)
		cancel()
		if late && r.ProtoMajor == 1 {
			// The deadlines belong to the connection. Send what there is, and close it, so that no later request meets them.
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}
