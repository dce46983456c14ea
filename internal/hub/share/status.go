package share

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

// settling is how long a status is still shown after the cut in which it was written, unless the cloud says something newer.
// Every 10 s kubelet compares what it knows about its Pods with what the cloud has.
const settling = 30 * time.Second

// errPrecondition says that a write is for another object, or for another state of the object, than the present one.
var errPrecondition = errors.New("it is not as the request says")

// errNotKept says that nobody keeps such a write while the cloud does not answer.
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

// statusWritten is the result of a write of a status, as protobuf.
type statusWritten struct {
	// shown is the object with the status as it was written; told is the answer to the writer.
	shown, told []byte
}

// writeStatus applies a write of an object's status, in the form that method and Content-Type name, to the object as the cloud
// has it. It can change nothing else of the object. So that the writer knows that, writeStatus refuses a write that changes
// labels, annotations or finalizers.
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

// applyWrite sets after to what a write makes of before.
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

// withStatus puts the status of after into raw, from which before was read.
func withStatus(raw []byte, before, after reported) (w statusWritten, err error) {
	var shown, told []byte
	switch now := after.(type) {
	case *corev1.Node:
		if shown, err = now.Status.Marshal(); err != nil {
			return w, err
		}
		// kubelet mounts a volume once the cloud has confirmed that it knows of its use, so the answer names only what
		// the cloud has.
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

// saidStatus is what kubelet said about an object while the cloud did not hear it.
type saidStatus struct {
	object stream.Object // on top of the cloud's Revision
	digest uint64
	at     time.Time
}

// statuses has what kubelet says about its Node and Pods while the cloud does not hear it. kubelet sees these as the cloud has
// them, and so repeats itself every 10 s until the cloud has heard it. Nothing needs to be kept for the cloud.
type statuses struct {
	changed func() // is called for each change

	mu     sync.Mutex
	said   map[stream.ID]saidStatus
	latest time.Time
	cutAt  time.Time // when the cloud was last not known to be up
}

func newStatuses(changed func()) *statuses {
	return &statuses{changed: changed, said: map[stream.ID]saidStatus{}}
}

// put takes in what kubelet says about an object.
func (s *statuses) put(i stream.ID, o stream.Object, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[i] = saidStatus{o, digest(o.Raw), now}
	s.latest = now
	s.changed()
}

// pods returns what is said of Pods.
func (s *statuses) pods() (all []stream.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, each := range s.said {
		if i.Resource == pods {
			all = append(all, each.object)
		}
	}
	return all
}

// cut reports whether the cloud is not known to be up, or was so until a moment ago.
func (s *statuses) cut(cloud link.State, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !cloud.Answers() {
		s.cutAt = now
	}
	return now.Sub(s.cutAt) < settling || now.Sub(s.latest) < settling
}

// addTo replaces what the cloud has by what kubelet said. It forgets what is over, because the cloud has said something newer
// or the cut has ended.
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

// leastDigest is the smallest digest. For those who push objects, 0 and 1 mean that the words are not the node's own.
const leastDigest = 2

func digest(raw []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(raw) // never fails
	return max(h.Sum64(), leastDigest)
}
