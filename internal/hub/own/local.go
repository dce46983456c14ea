package own

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// matter is what a request of the node's programs is about, as far as it is seen to while the cloud does not answer.
type matter uint8

const (
	// other: it is refused then.
	other matter = iota
	// newEvent, changedEvent: an Event is created, or patched.
	newEvent
	changedEvent
	// status: that of the Node, or of a Pod.
	status
	// review: who somebody is, or what he may do. Nothing is written.
	review
)

// String is the name in metrics.
func (m matter) String() string {
	return [...]string{"other", "event", "event", "status", "review"}[m]
}

// matterOf says what a request is about, and which object.
func matterOf(method, path, query string, node edge.NodeName) (matter, id) {
	switch {
	case strings.Contains(query, "dryRun"):
		return other, id{}
	case method == http.MethodPost && (path == "/apis/authentication.k8s.io/v1/tokenreviews" ||
		path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"):
		return review, id{}
	}
	if k, ok := eventPath(path); ok {
		switch {
		case method == http.MethodPost && k.Name == "":
			return newEvent, id{events, k}
		case method == http.MethodPatch && k.Name != "":
			return changedEvent, id{events, k}
		default:
			return other, id{}
		}
	}
	object, ok := strings.CutSuffix(path, "/status")
	if !ok || method != http.MethodPatch && method != http.MethodPut {
		return other, id{}
	}
	if name, ok := strings.CutPrefix(object, "/api/v1/nodes/"); ok && name == string(node) {
		return status, id{nodes, stream.Key{Name: name}}
	}
	below, ok := strings.CutPrefix(object, "/api/v1/namespaces/")
	if parts := strings.Split(below, "/"); ok && len(parts) == 3 && parts[1] == pods && parts[0] != "" && parts[2] != "" {
		return status, id{pods, stream.Key{Namespace: parts[0], Name: parts[2]}}
	}
	return other, id{}
}

// Tap makes requests of the node's programs through next, which is the cloud. Events that are written by them are read
// along. While the cloud does not answer, Events are taken here, for the coordinator to show and the cloud to hear of later;
// and if the coordinator can be reached, so is what kubelet says of its Node and Pods, and reviews are the coordinator's to
// answer.
func (p *Pusher) Tap(next http.RoundTripper) http.RoundTripper { return tap{next, p} }

type tap struct {
	next http.RoundTripper
	*Pusher
}

// RoundTrip implements http.RoundTripper.
func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	m, about := matterOf(r.Method, r.URL.Path, r.URL.RawQuery, t.config.Node)
	isEvent := m == newEvent || m == changedEvent
	cut := t.config.CloudLink.Get() == link.Down
	if m == other || !cut && m == review {
		return t.next.RoundTrip(r)
	}
	if cut || isEvent && t.gatherer.events.waits(about.Key) {
		if response := t.answer(r, m, about); response != nil {
			closeBody(r)
			return response, nil
		}
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		if r.Context().Err() == nil && m != review { // a review is asked again, and by then the link is judged
			if local := t.answer(r, m, about); local != nil {
				return local, nil
			}
		}
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if m != review {
			if local := t.answer(r, m, about); local != nil {
				_ = response.Body.Close()
				return local, nil
			}
		}
	}
	if isEvent && (response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated) &&
		response.Header.Get("Content-Encoding") == "" {
		response.Body = &overheard{ReadCloser: response.Body, events: t.gatherer.events}
	}
	return response, nil
}

// answer answers in the cloud's place, or returns nil.
func (p *Pusher) answer(r *http.Request, m matter, about id) *http.Response {
	if p.config.Link.Get() != link.Up && m != newEvent && m != changedEvent {
		return nil
	}
	body, ok := bodyOf(r)
	if !ok {
		return nil
	}
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil
	}
	var response *http.Response
	switch m {
	case newEvent:
		response, err = p.takeEvent(r, about.Key, body)
	case changedEvent:
		response, err = p.takePatch(r, about.Key, contentType, body)
	case status:
		response, err = p.takeStatus(r, about, contentType, body)
	default:
		response, err = p.review(r, body)
	}
	if no := apierrors.APIStatus(nil); errors.As(err, &no) {
		s := no.Status()
		response, err = respondStatus(r, &s), nil
	}
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("Not taken in the cloud's place", "method", r.Method, "path", r.URL.Path,
			"err", err)
		return nil
	}
	p.metrics.local.WithLabelValues(m.String()).Inc()
	return response
}

// bodyOf returns the body of a request that can be read more than once, as those that are short can.
func bodyOf(r *http.Request) ([]byte, bool) {
	if r.GetBody == nil || r.Header.Get("Content-Encoding") != "" {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	defer body.Close()
	all, err := io.ReadAll(body)
	return all, err == nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // a RoundTripper's duty; its error concerns nobody
	}
}

func (p *Pusher) takeEvent(r *http.Request, about stream.Key, body []byte) (*http.Response, error) {
	event, err := readEvent(body)
	if err != nil {
		return nil, err
	}
	if event.Namespace == "" {
		event.Namespace = about.Namespace
	}
	if event.Namespace != about.Namespace || event.Name == "" || len(body) > maxEventBytes {
		return nil, errNotKept
	}
	object, err := p.gatherer.events.create(event, time.Now())
	if err != nil {
		return nil, err
	}
	p.gatherer.events.flush(r.Context())
	return respond(r, http.StatusCreated, events, object.Raw)
}

func (p *Pusher) takePatch(r *http.Request, about stream.Key, contentType string, body []byte) (*http.Response, error) {
	if contentType != string(types.StrategicMergePatchType) || len(body) > maxEventBytes {
		return nil, errNotKept
	}
	object, err := p.gatherer.events.change(about, body, time.Now())
	if err != nil {
		return nil, err
	}
	p.gatherer.events.flush(r.Context())
	return respond(r, http.StatusOK, events, object.Raw)
}

func (p *Pusher) takeStatus(r *http.Request, about id, contentType string, body []byte) (*http.Response, error) {
	base, ok := p.gatherer.onNode(about)
	if !ok {
		return nil, errNotKept
	}
	w, err := writeStatus(base, about.resource, r.Method, contentType, body)
	if errors.Is(err, errPrecondition) {
		return nil, apierrors.NewConflict(corev1.Resource(about.resource), about.Name, err)
	}
	if err != nil {
		return nil, err
	}
	p.gatherer.said.put(about, stream.Object{Key: base.Key, Revision: base.Revision, Raw: w.shown}, time.Now())
	return respond(r, http.StatusOK, about.resource, w.told)
}

// review asks the coordinator. Its answer is not to be remembered as the cloud's.
func (p *Pusher) review(r *http.Request, body []byte) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.URL.Scheme, asked.URL.Host, asked.Host = p.config.Base.Scheme, p.config.Base.Host, ""
	asked.Body = io.NopCloser(bytes.NewReader(body))
	response, err := p.config.Transport.RoundTrip(asked)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusCreated {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the coordinator answers %s", response.Status)
	}
	response.Header.Set("Cache-Control", "no-store")
	return response, nil
}

// respond answers with an object, as protobuf or JSON.
func respond(r *http.Request, code int, resource string, raw []byte) (*http.Response, error) {
	kind := corev1.SchemeGroupVersion.WithKind(kinds[resource])
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
