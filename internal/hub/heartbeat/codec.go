package heartbeat

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody bounds the body of a PUT, in bytes. A kubelet's Lease has about 1 KB with its managed fields.
const maxBody = 256 << 10

var leaseKind = coordinationv1.SchemeGroupVersion.WithKind("Lease")

// decode reads the Lease in the body of a PUT or POST. The Content-Type names the encoding; a missing one means JSON. The errors
// are API statuses.
func decode(w http.ResponseWriter, r *http.Request) (*coordinationv1.Lease, error) {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		contentType = runtime.ContentTypeJSON
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Content-Type %q: %v", contentType, err))
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("a Lease comes as JSON or protobuf, not as %q", media))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, apierrors.NewRequestEntityTooLargeError(
				fmt.Sprintf("a node's Lease has at most %d bytes", maxBody))
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	}
	object, _, err := scheme.Codecs.DecoderToVersion(info.Serializer, coordinationv1.SchemeGroupVersion).
		Decode(body, &leaseKind, &coordinationv1.Lease{})
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decode the Lease: %v", err))
	}
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body holds a %T, not a %s", object, leaseKind))
	}
	return lease, nil
}

// encoder chooses the encoding of the answer: the first one in the request's Accept header that the hub supports, else JSON. It
// ignores quality values, because clients list their preference first. It skips tables and other forms of the object.
func encoder(r *http.Request) runtime.SerializerInfo {
	supported := scheme.Codecs.SupportedMediaTypes()
	for _, header := range r.Header.Values("Accept") {
		for clause := range strings.SplitSeq(header, ",") {
			media, parameters, err := mime.ParseMediaType(strings.TrimSpace(clause))
			if err != nil || parameters["as"] != "" {
				continue
			}
			if info, ok := runtime.SerializerInfoForMediaType(supported, media); ok {
				return info
			}
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(supported, runtime.ContentTypeJSON)
	return info
}

// reply answers a request with an object of a group and version, and returns an error if kubelet did not get it.
func reply(w http.ResponseWriter, r *http.Request, code int, version schema.GroupVersion, object runtime.Object) error {
	info := encoder(r)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, version), object)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// status returns an error in the API's own form.
func status(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// replyError answers with an error: an API status as it is, anything else as an internal error.
func replyError(w http.ResponseWriter, r *http.Request, err error) error {
	answer := apierrors.NewInternalError(err).Status()
	if api := apierrors.APIStatus(nil); errors.As(err, &api) {
		answer = api.Status()
	}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return reply(w, r, int(answer.Code), schema.GroupVersion{Version: "v1"}, &answer)
}
