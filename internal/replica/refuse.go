package replica

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Refuse answers 503 with a Status, to be tried again in a second: what was asked for is not known here.
func Refuse(w http.ResponseWriter, message string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: message,
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, strings.TrimSpace(message), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(body) // fails only if the client is gone
}
