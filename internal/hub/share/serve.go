package share

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/stream"
)

// matter is the subject of a request of the node's programs.
type matter uint8

const (
	// newEvent, changedEvent: an Event is created, or patched.
	newEvent matter = iota
	changedEvent
	// statusWrite: the status of the Node or of a Pod is written.
	statusWrite
)

// String returns the name in metrics.
func (m matter) String() string {
	return [...]string{"event", "event", "status"}[m]
}

// matterOf returns the subject of a request that front.Decide sends to the Taker, and the object that the request concerns.
func matterOf(info *request.RequestInfo) (matter, stream.ID) {
	about := stream.ID{Resource: info.Resource, Key: stream.Key{Namespace: info.Namespace, Name: info.Name}}
	switch {
	case info.Resource == events && info.Verb == "create":
		return newEvent, about
	case info.Resource == events:
		return changedEvent, about
	case info.Resource == nodes:
		about.Namespace = ""
	}
	return statusWrite, about
}

// Waits reports whether the Event that a request writes is waiting for the cloud.
func (t *Taker) Waits(info *request.RequestInfo) bool {
	m, about := matterOf(info)
	return (m == newEvent || m == changedEvent) && t.events.waits(about.Key)
}

// Heard records an Event as the cloud has answered a program's write of it.
func (t *Taker) Heard(answer []byte) {
	if object, ok := eventOf(answer); ok && len(answer) <= maxEventBytes {
		t.events.add(object, t.config.Ends.Running())
	}
}

// Answer answers a program's write in the cloud's place and returns true, or writes nothing and returns false. It accepts Events,
// which the cloud gets later, and the statuses of kubelet's Node and Pods. It implements front.OfflineWriter.
func (t *Taker) Answer(w http.ResponseWriter, r *http.Request, body []byte) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || body == nil || r.Context().Err() != nil || r.Header.Get("Content-Encoding") != "" {
		return false
	}
	m, about := matterOf(info)
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return false
	}
	a, err := t.answer(r, contentType, body, m, about)
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("Not taken in the cloud's place", "method", r.Method, "path", r.URL.Path,
			"err", err)
		return false
	}
	t.metrics.local.WithLabelValues(m.String()).Inc()
	w.Header().Set("Warning", `110 yurthub "the cloud cannot be reached; it will hear of this when it is back"`)
	a.write(w, "no-cache, private")
	return true
}

// answer returns the answer to a write, which may be a refusal in Kubernetes' form. It fails if the Taker does not accept the
// write.
func (t *Taker) answer(r *http.Request, contentType string, body []byte, m matter, about stream.ID) (answer, error) {
	var raw []byte
	var err error
	code := http.StatusOK
	switch m {
	case newEvent:
		code = http.StatusCreated
		raw, err = t.takeEvent(r.Context(), about.Key, body)
	case changedEvent:
		raw, err = t.takePatch(r.Context(), about.Key, contentType, body)
	case statusWrite:
		raw, err = t.takeStatus(r.Method, about, contentType, body)
	}
	if no := apierrors.APIStatus(nil); errors.As(err, &no) {
		s := no.Status()
		s.APIVersion, s.Kind = "v1", "Status"
		text, err := json.Marshal(s)
		return answer{int(s.Code), runtime.ContentTypeJSON, text}, err
	}
	if err != nil {
		return answer{}, err
	}
	kind := corev1.SchemeGroupVersion.WithKind(kinds[about.Resource])
	return answerOf(r, code, kind, raw, newWritable(about.Resource))
}

func (t *Taker) takeEvent(ctx context.Context, about stream.Key, body []byte) ([]byte, error) {
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
	object, err := t.events.create(event, t.config.Ends.Running())
	if err != nil {
		return nil, err
	}
	t.events.flush(ctx)
	return object.Raw, nil
}

func (t *Taker) takePatch(ctx context.Context, about stream.Key, contentType string, body []byte) ([]byte, error) {
	if contentType != string(types.StrategicMergePatchType) || len(body) > maxEventBytes {
		return nil, errNotKept
	}
	object, err := t.events.change(about, body, t.config.Ends.Running())
	if err != nil {
		return nil, err
	}
	t.events.flush(ctx)
	return object.Raw, nil
}

func (t *Taker) takeStatus(method string, about stream.ID, contentType string, body []byte) ([]byte, error) {
	base, ok := t.config.Object(about)
	if !ok {
		return nil, errNotKept
	}
	w, err := writeStatus(base, about.Resource, method, contentType, body)
	if errors.Is(err, errPrecondition) {
		return nil, apierrors.NewConflict(corev1.Resource(about.Resource), about.Name, err)
	}
	if err != nil {
		return nil, err
	}
	t.statuses.put(about, stream.Object{Key: base.Key, Revision: base.Revision, Raw: w.shown}, t.config.Ends.Running())
	return w.told, nil
}
