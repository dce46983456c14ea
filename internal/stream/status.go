package stream

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrorOf makes an error from a Status. It is an *apierrors.StatusError. For code 410 or reason Expired it is also ErrExpired.
// For code 503 it is also ErrNotReady: ask again later. The same holds for "Too large resource version", which means that the
// server is behind the requested revision.
func ErrorOf(status *metav1.Status) error {
	if status.Message == "" {
		with := *status
		with.Message = fmt.Sprintf("the server gave no message (code %d, reason %q)", status.Code, status.Reason)
		status = &with
	}
	err := apierrors.FromObject(status)
	switch {
	case status.Code == http.StatusGone, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return fmt.Errorf("%w: %w", ErrExpired, err)
	case status.Code == http.StatusServiceUnavailable,
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	default:
		return err
	}
}

// ReadStatus reads a Status in either encoding, such as the body of an answer that is no success.
func ReadStatus(data []byte) (metav1.Status, error) {
	var status metav1.Status
	t, raw, err := OpenEnvelope(data)
	switch {
	case err != nil:
		return status, err
	case t.Kind != "Status":
		return status, fmt.Errorf("want a Status, got a %q", t.Kind)
	case t.Encoding == Protobuf:
		err = status.Unmarshal(raw)
	default:
		err = json.Unmarshal(raw, &status)
	}
	if err != nil {
		return status, fmt.Errorf("read a Status: %w", err)
	}
	return status, nil
}

// WriteStatus writes a Status as the body of an answer.
func WriteStatus(e Encoding, status *metav1.Status) ([]byte, error) {
	t, raw, err := encodeStatus(e, status)
	if err != nil {
		return nil, err
	}
	return Envelope(t, raw), nil
}

func encodeStatus(e Encoding, status *metav1.Status) (t Type, raw []byte, err error) {
	switch e {
	case Protobuf:
		raw, err = status.Marshal()
	case JSON:
		raw, err = json.Marshal(status)
	default:
		err = errNoEncoding
	}
	if err != nil {
		return t, nil, fmt.Errorf("write a Status: %w", err)
	}
	return Type{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Status"}, Encoding: e}, raw, nil
}
