package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// said shows every ConfigMap with a word in place of what it says.
type said struct{ word *live.Value[string] }

type saidNow string

func (s said) Look() (replica.Look, <-chan struct{}) {
	word, over := s.word.Watch()
	return saidNow(word), over
}

func (s saidNow) Show(_ stream.Type, o stream.Object) ([]byte, bool) {
	var m corev1.ConfigMap
	if err := m.Unmarshal(o.Raw); err != nil {
		return o.Raw, true
	}
	m.Data["at"] = string(s) + " " + m.Data["at"]
	raw, err := m.Marshal()
	return raw, err == nil
}

// protoMap is the ConfigMap kube-root-ca.crt of namespace a, in protobuf.
func protoMap(t *testing.T, revision edge.Revision) stream.Object {
	t.Helper()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "kube-root-ca.crt", ResourceVersion: revision.String()},
		Data:       map[string]string{"at": revision.String()},
	}
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: "a", Name: "kube-root-ca.crt"}, Revision: revision, Raw: raw}
}

const (
	rootOfA  = listOfA + "?fieldSelector=metadata.name%3Dkube-root-ca.crt"
	otherOfA = listOfA + "?fieldSelector=metadata.name%3Dother"
)

var rootSelection = Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=kube-root-ca.crt"}

// viewed is a world in which kubelet sees rootSelection with a word.
func viewed(t *testing.T, w *setWorld) *live.Value[string] {
	t.Helper()
	word := live.NewValue("old")
	w.kubelet = func(s Selection) replica.View {
		if s == rootSelection {
			return said{word}
		}
		return nil
	}
	w.restart()
	w.hasAs(stream.Type{GroupVersionKind: jsonMaps.GroupVersionKind, Encoding: stream.Protobuf}, rootSelection, 7, protoMap(t, 7))
	return word
}

// kubelet follows each ConfigMap separately. It sees one with a view through that view: in lists, gets and watches, with the
// cloud and without, and after a restart. Its watch reports changes of the view. Other clients see the ConfigMap as it is.
func TestKubeletSeesASelectionOfItsOwnThroughAView(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		word := viewed(t, w)
		want(t, w.get(rootOfA), http.StatusOK, `"at":"old 7"`)
		told, end := w.watch(rootOfA + "&watch=1&resourceVersion=7")
		defer end()
		synctest.Wait()
		word.Set("new")
		synctest.Wait()
		if got := told.Body.String(); !strings.Contains(got, `"MODIFIED"`) || !strings.Contains(got, `"at":"new 7"`) {
			t.Errorf("a change of the view is not told within the watch: %q", got)
		}
		w.has(of("a", rootSelection), 7, setObject("kube-root-ca.crt", 7))
		if _, body := w.as("a", rootOfA); !strings.Contains(body, `"at":"7"`) {
			t.Errorf("a caller with a token of its own sees %s", body)
		}
		time.Sleep(10 * time.Second) // to the disk
		end()
		w.link.Set(link.Down)
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		const single = listOfA + "/kube-root-ca.crt"
		for range 2 {
			want(t, w.get(rootOfA), http.StatusOK, `"at":"new 7"`)
			want(t, w.get(single), http.StatusOK, `"at":"new 7"`)
			w.restart()
		}
		w.nothing()
	})
}

// A view reads protobuf. What comes in JSON all the same is shown as the cloud has it.
func TestWhatComesInJSONIsShownAsItIs(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.kubelet = func(Selection) replica.View { return said{live.NewValue("old")} }
		w.restart()
		w.has(rootSelection, 7, setObject("kube-root-ca.crt", 7))
		w.has(Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=other"}, 7, setObject("other", 7))
		for _, path := range []string{rootOfA, otherOfA, rootOfA, otherOfA} {
			want(t, w.get(path), http.StatusOK, `"at":"7"`)
		}
		w.nothing()
	})
}

// The cloud knows no view. What it would answer to one list, the watch that follows would never put right.
func TestTheCloudAnswersNothingThatHasAView(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		viewed(t, w)
		w.source(rootSelection).set(func() {
			w.sources[rootSelection].fails = apierrors.NewForbidden(configMaps.GroupResource(), "", nil)
		})
		want(t, w.get(rootOfA), http.StatusServiceUnavailable, "forbidden")
		w.nothing()
		w.source(rootSelection).set(func() { w.sources[rootSelection].fails = nil })
		time.Sleep(3 * time.Second) // the first pause of a feed that was denied
		want(t, w.get(rootOfA), http.StatusOK, `"at":"old 7"`)
		// A revision that the replica has yet to reach.
		if out := w.get(rootOfA + "&resourceVersion=70"); out.Code != http.StatusGatewayTimeout {
			t.Errorf("%d %s", out.Code, out.Body)
		}
		w.nothing()
	})
}

// Where kubelet follows as much as it may, there is room for what the cloud can't answer.
func TestThereIsRoomForWhatHasAView(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		viewed(t, w)
		w.kept = 100          // a thousand that begin at once are too much for the race detector
		w.link.Set(link.Down) // so that each costs little
		for i := range w.kept {
			w.get(fmt.Sprintf("/api/v1/namespaces/%d/configmaps", i))
		}
		w.link.Set(link.Up)
		w.passed()
		w.get(otherOfA)
		w.passedOn()
		want(t, w.get(rootOfA), http.StatusOK, `"at":"old 7"`)
		w.nothing()
	})
}
