package replica

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/stream"
)

// unavailable returns an answer of 503, which asks the client to try again in a second.
func unavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Refuse answers 503 with a Status, to be tried again in a second, because this hub does not have what was asked for.
func Refuse(w http.ResponseWriter, message string) {
	status := unavailable(message).Status()
	body, err := stream.WriteStatus(stream.JSON, &status)
	if err != nil {
		http.Error(w, message, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", stream.JSON.ContentType(false))
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(body) // fails only if the client is gone
}
