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

// settling is how long the hub still shows kubelet's statuses after a cut, and after kubelet's last write of one. By then the
// cloud should have them, because kubelet compares its Pods with the cloud every 10 s.
const settling = 30 * time.Second

// errPrecondition says that a write expects another object, or another state of the object, than the present one.
var errPrecondition = errors.New("it is not as the request says")

// errNotKept says that the Taker does not accept such a write.
var errNotKept = errors.New("not kept while the cloud cannot be reached")

// writable is a Node, a Pod or an Event.
type writable interface {
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

func newWritable(resource string) writable {
	switch resource {
	case nodes:
		return &corev1.Node{}
	case events:
		return &corev1.Event{}
	default:
		return &corev1.Pod{}
	}
}

// statusWritten is the result of a write of a status, as protobuf.
type statusWritten struct {
	// shown is the object with the status as it was written; told is the answer to the writer.
	shown, told []byte
}

// writeStatus applies a write of a status to base, the cloud's version of the object. The parameters method and contentType say
// in which form the body is. writeStatus refuses a write that also changes labels, annotations or finalizers, because it keeps
// only the status.
func writeStatus(base stream.Object, resource, method, contentType string, body []byte) (statusWritten, error) {
	before, after := newWritable(resource), newWritable(resource)
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

// applyWrite sets after to before with the write applied.
func applyWrite(before, after writable, method, contentType string, body []byte) error {
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
func withStatus(raw []byte, before, after writable) (w statusWritten, err error) {
	var shown, told []byte
	switch now := after.(type) {
	case *corev1.Node:
		if shown, err = now.Status.Marshal(); err != nil {
			return w, err
		}
		// kubelet mounts a volume once the cloud has confirmed its use, so the answer names only what the cloud has.
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

// saidStatus is a status that kubelet wrote and the cloud has not got.
type saidStatus struct {
	object stream.Object // on top of the cloud's Revision
	digest uint64
	at     time.Time
}

// statuses holds the statuses that kubelet writes while the cloud does not answer. The hub never sends them to the cloud, because
// kubelet itself repeats a status every 10 s until the cloud has it.
type statuses struct {
	changed func() // is called for each change
	written bell   // one was put

	mu     sync.Mutex
	said   map[stream.ID]saidStatus
	latest time.Time
	cutAt  time.Time // when the cloud was last not known to be up
}

func newStatuses(changed func()) *statuses {
	return &statuses{changed: changed, written: newBell(), said: map[stream.ID]saidStatus{}}
}

// put records a status that kubelet wrote.
func (s *statuses) put(i stream.ID, o stream.Object, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[i] = saidStatus{o, digest(o.Raw), now}
	s.latest = now
	s.written.ring()
	s.changed()
}

// forget drops all statuses: the cut is over.
func (s *statuses) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.said)
	s.changed()
}

// pods returns the Pods with such statuses.
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

// cut reports whether the cloud is not known to answer, or was not until a moment ago.
func (s *statuses) cut(cloud link.State, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !cloud.Answers() {
		s.cutAt = now
	}
	return now.Sub(s.cutAt) < settling || now.Sub(s.latest) < settling
}

// addTo replaces the cloud's objects by those with kubelet's statuses. It drops a status if the cut has ended, or if the cloud's
// object is gone or has another revision.
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

// leastDigest is the smallest digest. Node uses 0 and 1 to mark content that is not the node's own word.
const leastDigest = 2

func digest(raw []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(raw) // never fails
	return max(h.Sum64(), leastDigest)
}
