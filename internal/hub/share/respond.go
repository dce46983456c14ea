package share

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"yurtcoordinator/internal/stream"
)

// respond answers with an object, as protobuf or JSON.
func respond(r *http.Request, code int, resource string, raw []byte) (*http.Response, error) {
	kind := corev1.SchemeGroupVersion.WithKind(takenKinds[resource])
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		t := stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}
		return response(r, code, runtime.ContentTypeProtobuf, stream.Envelope(t, raw)), nil
	}
	var o interface{ Unmarshal(data []byte) error }
	if o = newReported(resource); resource == events {
		o = &corev1.Event{}
	}
	if err := o.Unmarshal(raw); err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	text = stream.Envelope(stream.Type{GroupVersionKind: kind, Encoding: stream.JSON}, text)
	return response(r, code, runtime.ContentTypeJSON, text), nil
}

func respondStatus(r *http.Request, s *metav1.Status) *http.Response {
	s.APIVersion, s.Kind = "v1", "Status"
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Errorf("a Status that is no JSON: %w", err)) // strings and numbers always are
	}
	return response(r, int(s.Code), runtime.ContentTypeJSON, text)
}

func response(r *http.Request, code int, contentType string, body []byte) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{
			"Content-Type": {contentType}, "Content-Length": {strconv.Itoa(len(body))},
			"Cache-Control": {"no-cache, private"},
			"Warning":       {`110 yurthub "the cloud cannot be reached; it will hear of this when it is back"`},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}
