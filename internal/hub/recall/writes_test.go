package recall

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	pods, pod = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p"
	done      = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`
)

// podAs is a Pod as an API server answers it, with what else its metadata has.
func podAs(uid, more string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"a","uid":%q%s}}`, uid, more)
}

// write has the cloud answer a client's write. An answer that breaks off panics, and net/http goes on.
func (w *world) write(client, method, target string, header ...string) {
	w.t.Helper()
	clients := NewClients(Config{Disk: w.disk, Tenure: w.tenure})
	defer func() {
		said := recover()
		if err, _ := said.(error); said != nil && !errors.Is(err, http.ErrAbortHandler) {
			panic(said)
		}
	}()
	clients.Written(httptest.NewRecorder(), asked(w.t, method, target, nil, header...), client, w.cloud)
}

// reads checks what a client is answered while cut off; empty: nothing is known.
func (w *world) reads(client, target, form, body string) {
	w.t.Helper()
	programs := w.Answers
	if client != "" {
		w.Answers = w.of(client, w.disk)
	}
	out := w.offline(http.MethodGet, target, "", accepts(form)...)
	w.Answers = programs
	if got := out.Body.String(); got != body && (body != "" || got != "unknown") {
		w.t.Errorf("%q reads of %s as %q: %s; want %q", client, target, form, got, body)
	}
}

// TestWrites is what is remembered of a Pod for those who had read it, after a program has written with Accept: JSON.
func TestWrites(t *testing.T) {
	const old, next, guest = "as it was read", "new", "sa 1"
	const ends = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	for _, tt := range []struct {
		name, method, target string
		code                 int
		body                 string
		// same is what the writer reads then, form what it has read in another form, others what another client has read.
		same, form, others string
	}{
		{"a change", "PUT", pod, 200, podAs(next, ""), podAs(next, ""), "", old},
		{"a patch", "PATCH", pod + "?fieldManager=x", 200, podAs(next, ""), podAs(next, ""), "", old},
		{"made by a change", "PUT", pod, 201, podAs(next, ""), podAs(next, ""), "", old},
		{"made", "POST", pods, 201, podAs(next, ""), podAs(next, ""), "", old},
		{"its status", "PATCH", pod + "/status", 200, podAs(next, ""), podAs(next, ""), old, old},
		{"its status, in part", "PATCH", pod + "/status", 200, podAs(next, "")[:20], "", old, old},
		{"another subresource", "PUT", pod + "/ephemeralcontainers", 200, podAs(next, ""), "", "", old},
		{"an eviction", "POST", pod + "/eviction", 201, done, "", "", old},
		{"something else is answered", "PUT", pod, 200, strings.Replace(podAs(next, ""), `"p"`, `"q"`, 1), "", "", old},
		{"a table", "PUT", pod, 200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[]}`, "", "", old},
		{"no object", "PUT", pod, 200, "{", "", "", old},
		{"too large", "PUT", pod, 200, podAs(next, `,"x":"`+strings.Repeat("x", answerBytes)+`"`), "", "", old},
		{"deleted", "DELETE", pod, 200, done, "", "", ""},
		{"deleted, with what was", "DELETE", pod, 200, podAs(next, ""), "", "", ""},
		{"deleted, but told in part", "DELETE", pod, 200, done[:20], "", "", old},
		{"being deleted", "DELETE", pod, 200, podAs(next, ends+`,"deletionGracePeriodSeconds":30`),
			podAs(next, ends+`,"deletionGracePeriodSeconds":30`), "", old},
		{"being deleted, with a finalizer", "DELETE", pod, 202, podAs(next, ends+`,"finalizers":["f"]`),
			podAs(next, ends+`,"finalizers":["f"]`), "", old},
		{"the last finalizer goes", "PATCH", pod, 200, podAs(next, ends), "", "", ""},
		{"all deleted", "DELETE", pods, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`, "", "", ""},
		{"others all deleted", "DELETE", pods + "x", 200, done, old, old, old},
		{"it is not there", "PATCH", pod, 404, done, "", "", old},
		{"it has no such subresource", "PATCH", pod + "/status", 404, done, old, old, old},
		{"refused", "PUT", pod, 409, done, old, old, old},
		{"not answered", "DELETE", pod, 503, done, old, old, old},
		{"a change, tried", "PUT", pod + "?dryRun=All", 200, podAs(next, ""), old, old, old},
		{"deleted, tried", "DELETE", pod + "?dryRun=All", 200, done, old, old, old},
		{"another one", "DELETE", pods + "/p2", 200, done, old, old, old},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(_ *testing.T, w *world) {
				programs := w.Answers
				w.says(http.StatusOK, asJSON, old)
				w.get(pod, "Accept", asJSON)
				w.get(pod, "Accept", asProto)
				w.Answers = w.of(guest, w.disk)
				w.get(pod, "Accept", asJSON)
				w.Answers = programs
				w.says(tt.code, asJSON, tt.body)
				w.write("", tt.method, tt.target, "Accept", asJSON)
				for range 2 {
					w.reads("", pod, asJSON, tt.same)
					w.reads("", pod, asProto, tt.form)
					w.reads(guest, pod, asJSON, tt.others)
					w.restart()
				}
			})
		})
	}
}

// An answer that breaks off may be of a write that was made: what was read before is forgotten.
func TestAWriteWhoseAnswerBreaksOff(t *testing.T) {
	bubble(t, func(_ *testing.T, w *world) {
		w.says(http.StatusOK, asJSON, "old")
		w.get(pod)
		w.cloud = func(out http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(out, podAs("new", ""))
			panic(http.ErrAbortHandler)
		}
		w.write("", http.MethodPut, pod)
		w.reads("", pod, "", "")
	})
}

// TestACallersWrites: a caller with credentials of its own reads back what it has written only if it has read the object
// before, because it may have the right to write alone. What it deletes is also gone for the node's programs.
func TestACallersWrites(t *testing.T) {
	const guest = "sa 1"
	bubble(t, func(_ *testing.T, w *world) {
		w.says(http.StatusCreated, asJSON, podAs("1", ""))
		w.write(guest, http.MethodPost, pods)
		w.reads(guest, pod, "", "")
		programs := w.Answers
		w.says(http.StatusOK, asJSON, podAs("1", ""))
		w.get(pod)
		w.Answers = w.of(guest, w.disk)
		w.get(pod)
		w.Answers = programs
		w.says(http.StatusOK, asJSON, podAs("2", ""))
		w.write(guest, http.MethodPut, pod)
		w.reads(guest, pod, "", podAs("2", ""))
		w.reads("", pod, "", podAs("1", "")) // the node may read it or not, and is not told
		w.says(http.StatusOK, asJSON, done)
		w.write(guest, http.MethodDelete, pod)
		w.reads(guest, pod, "", "")
		w.reads("", pod, "", "")
		w.says(http.StatusOK, asJSON, podAs("1", "")) // restored, as from a backup
		w.get(pod)
		w.reads("", pod, "", podAs("1", ""))
	})
}

func TestWritesThatAreNotRemembered(t *testing.T) {
	for target, kind := range map[string]string{
		"/apis/coordination.k8s.io/v1/namespaces/a/leases/x": `"Lease","apiVersion":"coordination.k8s.io/v1"`,
		"/api/v1/namespaces/a/events/x":                      `"Event","apiVersion":"v1"`,
		"/api/v1/namespaces/a//configmaps/x":                 `"ConfigMap","apiVersion":"v1"`,
		"/apis/example.org/v1/things/x/status":               `"Thing","apiVersion":"example.org/v1"`, // by whatever serves it
	} {
		bubble(t, func(t *testing.T, w *world) {
			w.says(http.StatusOK, asJSON, `{"kind":`+kind+`,"metadata":{"name":"x"}}`)
			w.write("", http.MethodPut, target)
			if left := w.disk.Blobs(answerPrefix); len(left) > 0 {
				t.Errorf("%s: remembered: %q", target, left)
			}
		})
	}
}

func TestAWriteAsProtobuf(t *testing.T) {
	raw, err := (&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Node"}, Raw: raw}
	if raw, err = unknown.Marshal(); err != nil {
		t.Fatal(err)
	}
	node := "k8s\x00" + string(raw)
	bubble(t, func(_ *testing.T, w *world) {
		w.says(http.StatusCreated, asProto, node)
		w.write("", http.MethodPost, "/api/v1/nodes", "Accept", asProto, "Content-Type", asProto)
		w.reads("", "/api/v1/nodes/n1?resourceVersion=0", asProto, node)
	})
}
