package standin

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// settling is how long after a cut what was said in it is shown, unless the cloud says something newer: kubelet compares
// what it knows of its Pods with what the cloud has every 10 s.
const settling = 30 * time.Second

// errPrecondition says that a write is of another object, or of another state of it, than there is.
var errPrecondition = errors.New("it is not as the request says")

// errNotKept says that a write is of something that nobody keeps while the cloud does not answer.
var errNotKept = errors.New("not kept while the cloud cannot be reached")

// reported is a Node or a Pod.
type reported interface {
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

func newReported(resource string) reported {
	if resource == nodes {
		return &corev1.Node{}
	}
	return &corev1.Pod{}
}

// statusWritten is what comes of a write of a status, as protobuf.
type statusWritten struct {
	// shown is the object with the status as it was written, told what the writer is answered.
	shown, told []byte
}

// writeStatus applies a write of the status of an object, which was sent as a method and a Content-Type say, to the object as
// the cloud has it. Nothing else of the object can be changed by it, which the writer must know: with its labels changed, it
// is not kept.
func writeStatus(base stream.Object, resource, method, contentType string, body []byte) (statusWritten, error) {
	before, after := newReported(resource), newReported(resource)
	if err := before.Unmarshal(base.Raw); err != nil {
		return statusWritten{}, err
	}
	if err := applyWrite(before, after, method, contentType, body); err != nil {
		return statusWritten{}, err
	}
	if after.GetName() != before.GetName() || after.GetNamespace() != before.GetNamespace() ||
		after.GetUID() != before.GetUID() && after.GetUID() != "" ||
		after.GetResourceVersion() != before.GetResourceVersion() && after.GetResourceVersion() != "" {
		return statusWritten{}, errPrecondition
	}
	if !equality.Semantic.DeepEqual(after.GetLabels(), before.GetLabels()) ||
		!equality.Semantic.DeepEqual(after.GetAnnotations(), before.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(after.GetFinalizers(), before.GetFinalizers()) {
		return statusWritten{}, errNotKept
	}
	return withStatus(base.Raw, before, after)
}

// applyWrite has after be what before becomes by a write.
func applyWrite(before, after reported, method, contentType string, body []byte) error {
	switch {
	case method == http.MethodPatch && contentType == string(types.StrategicMergePatchType):
		old, err := json.Marshal(before)
		if err != nil {
			return err
		}
		patched, err := strategicpatch.StrategicMergePatch(old, body, after)
		if err != nil {
			return err
		}
		return json.Unmarshal(patched, after)
	case method == http.MethodPut && contentType == runtime.ContentTypeProtobuf:
		t, raw, err := stream.OpenEnvelope(body)
		if err != nil || t.Encoding != stream.Protobuf {
			return errNotKept
		}
		return after.Unmarshal(raw)
	case method == http.MethodPut && contentType == runtime.ContentTypeJSON:
		return json.Unmarshal(body, after)
	default:
		return errNotKept
	}
}

// withStatus puts the status of after into an object of which before has been read.
func withStatus(raw []byte, before, after reported) (w statusWritten, err error) {
	var shown, told []byte
	switch now := after.(type) {
	case *corev1.Node:
		if shown, err = now.Status.Marshal(); err != nil {
			return w, err
		}
		// kubelet mounts a volume once it has been told that the cloud has heard that it is in use: only what it has.
		if old, ok := before.(*corev1.Node); ok {
			now.Status.VolumesInUse = old.Status.VolumesInUse
		}
		told, err = now.Status.Marshal()
	case *corev1.Pod:
		shown, err = now.Status.Marshal()
		told = shown
	}
	if err == nil {
		w.shown, err = edit.Set(raw, edit.Status, shown)
	}
	if err == nil {
		w.told, err = edit.Set(raw, edit.Status, told)
	}
	return w, err
}

// said is what kubelet has said of an object while the cloud did not hear it.
type said struct {
	object stream.Object // on top of the cloud's Revision
	digest uint64
	at     time.Time
}

// statuses are what kubelet says of the Node and its Pods while the cloud does not hear it. kubelet sees them as the cloud
// has them, and so says it again, every 10 s, until the cloud has heard it: nothing is kept for that.
type statuses struct {
	changed func() // is told of each

	mu     sync.Mutex
	said   map[stream.ID]said
	latest time.Time
	cutAt  time.Time // when the cloud was seen cut off last
}

func newStatuses(changed func()) *statuses {
	return &statuses{changed: changed, said: map[stream.ID]said{}}
}

// put takes in what is said of an object.
func (s *statuses) put(i stream.ID, o stream.Object, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[i] = said{o, digest(o.Raw), now}
	s.latest = now
	s.changed()
}

// cut reports whether the cloud is cut off, or was until a moment ago, or may be.
func (s *statuses) cut(cloud link.State, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cloud != link.Up {
		s.cutAt = now
	}
	return now.Sub(s.cutAt) < settling || now.Sub(s.latest) < settling
}

// addTo puts what was said in the place of what the cloud has, and forgets what is over: the cloud has said something newer,
// or it is not cut off any more.
func (s *statuses) addTo(objects map[stream.ID]stream.Object, locals map[stream.ID]uint64, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, each := range s.said {
		if o, ok := objects[i]; !cut || !ok || o.Revision != each.object.Revision {
			delete(s.said, i)
			continue
		}
		objects[i], locals[i] = each.object, each.digest
	}
}

// leastDigest is the smallest digest: to those who push objects, 0 and 1 stand for others than the node's own words.
const leastDigest = 2

func digest(raw []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(raw) // never fails
	return max(h.Sum64(), leastDigest)
}
