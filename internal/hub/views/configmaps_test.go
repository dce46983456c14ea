package views

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/replica/viewtest"
	"yurtcoordinator/internal/stream"
)

// labelled is a form that puts its inputs in front.
func labelled(value, inputs string) string { return inputs + value }

var (
	anywhere  = Shown{Name: "root", Key: "ca.crt", Form: labelled}
	inOnePart = Shown{Namespace: "kube-system", Name: "proxy", Key: "kubeconfig.conf", Form: labelled}
)

func configMap(t testing.TB, k stream.Key, r edge.Revision, data map[string]string) stream.Object {
	t.Helper()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, ResourceVersion: r.String(), UID: "u"},
		Data:       data, BinaryData: map[string][]byte{"ca.crt.bin": {0, 1}},
	}
	return stream.Object{Key: k, Revision: r, Raw: encode(t, m)}
}

var mapType = stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Encoding: stream.Protobuf}

func TestConfigMapsConform(t *testing.T) {
	viewtest.Run(t, func(t *testing.T) viewtest.Subject {
		var views []*ConfigMaps
		inputs := ""
		return viewtest.Subject{
			Resource: configMapsResource, Type: mapType,
			Keys: []stream.Key{
				{Namespace: "a", Name: "root"}, {Namespace: "b", Name: "root"}, {Namespace: "a", Name: "other"},
			},
			View: func() replica.View {
				c := NewConfigMaps(anywhere, inOnePart)
				c.Change("root", inputs)
				views = append(views, c)
				return c
			},
			Turn: func(random *rand.Rand) {
				inputs = fmt.Sprint(random.IntN(3))
				for _, c := range views {
					c.Change("root", inputs)
				}
			},
			Make: func(random *rand.Rand, k stream.Key, revision edge.Revision) stream.Object {
				return configMap(t, k, revision, map[string]string{"ca.crt": fmt.Sprint(random.IntN(3)), "x": "y"})
			},
		}
	})
}

func TestConfigMapsShow(t *testing.T) {
	for _, c := range []struct {
		name string
		key  stream.Key
		data map[string]string
		want map[string]string // nil: the same bytes
	}{
		{"any namespace", stream.Key{Namespace: "a", Name: "root"}, map[string]string{"ca.crt": "x", "other": "y"},
			map[string]string{"ca.crt": "new x", "other": "y"}},
		{"one namespace", stream.Key{Namespace: "kube-system", Name: "proxy"}, map[string]string{"kubeconfig.conf": "x"},
			map[string]string{"kubeconfig.conf": "moved x"}},
		{"another namespace", stream.Key{Namespace: "a", Name: "proxy"}, map[string]string{"kubeconfig.conf": "x"}, nil},
		{"another name", stream.Key{Namespace: "a", Name: "roots"}, map[string]string{"ca.crt": "x"}, nil},
		{"another value", stream.Key{Namespace: "a", Name: "root"}, map[string]string{"ca": "x"}, nil},
		{"no values", stream.Key{Namespace: "a", Name: "root"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			view := NewConfigMaps(anywhere, inOnePart)
			before, over := view.Look()
			view.Change("root", "new ")
			view.Change("proxy", "moved ")
			<-over
			o := configMap(t, c.key, 7, c.data)
			if raw, visible := before.Show(mapType, o); !visible || &raw[0] != &o.Raw[0] {
				t.Error("shown in another form before there were inputs")
			}
			look, still := view.Look()
			raw, visible := look.Show(mapType, o)
			want := o.Raw
			if c.want != nil {
				want = configMap(t, c.key, 7, c.want).Raw
			}
			var got, wanted corev1.ConfigMap
			decode(t, raw, &got)
			decode(t, want, &wanted)
			if !visible || got.String() != wanted.String() || c.want == nil && &raw[0] != &o.Raw[0] {
				t.Errorf("shown %s", &got)
			}
			view.Change("root", "new ")
			select {
			case <-still:
				t.Error("watches are told, and nothing has changed")
			default:
			}
		})
	}
}

// TestConfigMapsKeepWhatTheyDoNotKnow: fields of a newer API server come through.
func TestConfigMapsKeepWhatTheyDoNotKnow(t *testing.T) {
	unknown := []byte("\x9a\x06\x03new") // field 99
	o := configMap(t, stream.Key{Namespace: "a", Name: "root"}, 7, map[string]string{"ca.crt": "x"})
	got, err := withValue(slices.Concat(o.Raw, unknown), "ca.crt", func(string) string { return "y" })
	if err != nil || !bytes.HasSuffix(got, unknown) {
		t.Errorf("an unknown field is gone: %v", err)
	}
}

func TestConfigMapsViewOnlyWhatTheyShow(t *testing.T) {
	c := NewConfigMaps(anywhere, inOnePart)
	for _, each := range []struct {
		selection cache.Selection
		want      bool
	}{
		{cache.Selection{Resource: configMapsResource, Namespace: "a", Fields: "metadata.name=root"}, true},
		{cache.Selection{Resource: configMapsResource, Namespace: "a", Fields: "metadata.name=proxy"}, false},
		{cache.Selection{Resource: configMapsResource, Namespace: "kube-system", Fields: "metadata.name=proxy"}, true},
		{cache.Selection{Resource: configMapsResource, Namespace: "a", Fields: "metadata.name=other"}, false},
		{cache.Selection{Resource: configMapsResource, Namespace: "a"}, false},
		{cache.Selection{Resource: configMapsResource, Namespace: "a", Fields: "metadata.name=root", Labels: "x=y"}, true},
		{cache.Selection{Resource: configMapsResource, Fields: "metadata.name!=root"}, false},
		{cache.Whole(configMapsResource), true},
		{cache.Selection{Resource: Services.Resource, Namespace: "a", Fields: "metadata.name=root"}, false},
	} {
		if got := c.View(each.selection) != nil; got != each.want {
			t.Errorf("%v has a view: %t", each.selection, got)
		}
	}
}

func TestConfigMapsGet(t *testing.T) {
	view := NewConfigMaps(anywhere)
	view.Change("root", "new ")
	infos := &request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	get := func(path string, answer func(http.ResponseWriter)) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		out := httptest.NewRecorder()
		r = r.WithContext(request.WithRequestInfo(context.Background(), info))
		w, end := view.Get(out, r)
		if shown := w != http.ResponseWriter(out); shown == (r.Header.Get("Accept-Encoding") != "") {
			t.Errorf("%s: the answer may be compressed: %t", path, shown)
		}
		answer(w)
		end()
		return out
	}
	says := func(status int, body []byte) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			w.WriteHeader(status)
			for part := range slices.Chunk(body, 10) {
				_, _ = w.Write(part)
			}
		}
	}
	const root, other = "/api/v1/namespaces/a/configmaps/root", "/api/v1/namespaces/a/configmaps/other"
	o := configMap(t, stream.Key{Namespace: "a", Name: "root"}, 7, map[string]string{"ca.crt": "x"})
	body := stream.Envelope(mapType, o.Raw)
	out := get(root, says(http.StatusOK, body))
	typ, raw, err := stream.OpenEnvelope(out.Body.Bytes())
	if err != nil || typ != mapType {
		t.Fatalf("%v: %v", typ, err)
	}
	var m corev1.ConfigMap
	decode(t, raw, &m)
	revision, err := edge.ParseRevision(m.ResourceVersion)
	own, marked := revision.Own()
	if m.Data["ca.crt"] != "new x" || err != nil || own != 7 || !marked ||
		out.Header().Get("Content-Length") != fmt.Sprint(out.Body.Len()) {
		t.Errorf("shown %v, %v", m, out.Header())
	}
	for path, want := range map[string][]byte{other: body, root + "?x=y": out.Body.Bytes()} {
		if got := get(path, says(http.StatusOK, body)); !bytes.Equal(got.Body.Bytes(), want) {
			t.Errorf("%s: %q", path, got.Body)
		}
	}
	const inJSON = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"root","namespace":"a","resourceVersion":"7"},` +
		`"data":{"ca.crt":"x"}}`
	large := bytes.Repeat([]byte("x"), maxObject+5)
	for name, c := range map[string]struct {
		status int
		body   []byte
	}{
		"a refusal": {http.StatusForbidden, []byte(`{"kind":"Status"}`)}, "no object": {http.StatusOK, []byte("hello")},
		"in JSON": {http.StatusOK, []byte(inJSON)}, "too large": {http.StatusOK, large},
		"without a name": {http.StatusOK, []byte(`{"kind":"ConfigMap","apiVersion":"v1"}`)},
	} {
		if got := get(root, says(c.status, c.body)); got.Code != c.status || !bytes.Equal(got.Body.Bytes(), c.body) {
			t.Errorf("%s: %d, %d bytes", name, got.Code, got.Body.Len())
		}
	}
	if got := get(root, func(http.ResponseWriter) {}); got.Body.Len() > 0 || len(got.Header()) > 0 {
		t.Error("no answer became one")
	}
}

func FuzzConfigMapsShow(f *testing.F) {
	f.Add(configMap(f, stream.Key{Namespace: "a", Name: "root"}, 7, map[string]string{"ca.crt": "x"}).Raw)
	view := NewConfigMaps(anywhere)
	view.Change("root", "new ")
	look, _ := view.Look()
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		o := stream.Object{Key: stream.Key{Namespace: "a", Name: "root"}, Revision: 7, Raw: raw}
		if _, visible := look.Show(mapType, o); !visible || !bytes.Equal(before, raw) {
			t.Fatal("the object itself was changed, or is hidden")
		}
	})
}

func TestRootCA(t *testing.T) {
	for _, c := range []struct{ cloud, hubs, want string }{
		{"cloud\n", "", "cloud\n"},
		{"cloud\n", "hubs\n", "cloud\nhubs\n"},
		{"cloud", "hubs\n", "cloud\nhubs\n"},
		{"", "hubs\n", "\nhubs\n"},
	} {
		view := NewConfigMaps(RootCA)
		view.Change(RootCA.Name, c.hubs)
		look, _ := view.Look()
		for _, namespace := range []string{"default", "kube-system"} {
			o := configMap(t, stream.Key{Namespace: namespace, Name: "kube-root-ca.crt"}, 7,
				map[string]string{"ca.crt": c.cloud})
			raw, _ := look.Show(mapType, o)
			var m corev1.ConfigMap
			decode(t, raw, &m)
			if m.Data["ca.crt"] != c.want {
				t.Errorf("%q and %q are shown as %q", c.cloud, c.hubs, m.Data["ca.crt"])
			}
		}
	}
}
