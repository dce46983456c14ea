package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// lists are as API servers have them: items of built-in types without kind, and those of custom ones with.
func lists(e stream.Encoding) map[string]runtime.Object {
	meta := metav1.ListMeta{ResourceVersion: "100"}
	many := &discoveryv1.EndpointSliceList{ListMeta: meta}
	for i := range 100 {
		s := slice(fmt.Sprintf("web-%03d", i), i+1, i)
		s.TypeMeta = metav1.TypeMeta{}
		many.Items = append(many.Items, *s)
	}
	huge := &corev1.ConfigMapList{ListMeta: meta, Items: []corev1.ConfigMap{{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "4"}, Data: map[string]string{"x": strings.Repeat("y", 3<<20)},
	}}}
	all := map[string]runtime.Object{
		"EndpointSlice": typed(many, "discovery.k8s.io/v1", "EndpointSliceList"),
		"Service":       typed(&corev1.ServiceList{ListMeta: meta}, "v1", "ServiceList"),
		"ConfigMap":     typed(huge, "v1", "ConfigMapList"),
	}
	if e == stream.JSON {
		all["Widget"] = &unstructured.UnstructuredList{
			Object: map[string]any{
				"kind": "WidgetList", "apiVersion": "example.org/v1", "metadata": map[string]any{"resourceVersion": "100"},
			},
			Items: []unstructured.Unstructured{*widget("a", 4), *widget("b", 5)},
		}
	}
	return all
}

func TestListsOfKubernetesAreReadAndWrittenAlike(t *testing.T) {
	for _, e := range encodings {
		for kind, list := range lists(e) {
			data := kubernetesObject(t, e, list)
			most := int64(len(data) + apimeta.LenList(list)*stream.ObjectBytes)
			var written []byte
			for how, deliver := range deliveries {
				if kind == "ConfigMap" && how == "by the byte" {
					continue // 3 MiB of it
				}
				t.Run(fmt.Sprint(e, kind, how), func(t *testing.T) {
					s, rest, err := stream.ReadList(deliver(bytes.NewReader(data)), e, most)
					if err != nil {
						t.Fatal(err)
					}
					if s.Type.Kind != kind || s.Type.Encoding != e || s.Revision != 100 || rest != "" {
						t.Errorf("it is of %v, revision %s, rest %q", s.Type, s.Revision, rest)
					}
					var out bytes.Buffer
					meta := metav1.ListMeta{ResourceVersion: s.Revision.String()}
					if err := stream.WriteList(&out, s.Type, meta, sequence(s.Objects...)); err != nil {
						t.Fatal(err)
					}
					if e == stream.Protobuf && !bytes.Equal(out.Bytes(), data) {
						t.Errorf("written again it is another: %.200q, was %.200q", out.Bytes(), data)
					}
					if bytes.Equal(out.Bytes(), written) {
						return // what Kubernetes reads from it is known
					}
					if written != nil {
						t.Errorf("another is written than if it arrives otherwise: %.200q, was %.200q", out.Bytes(), written)
					}
					written = out.Bytes()
					if kind == "Widget" {
						return
					}
					got, _, err := scheme.Codecs.UniversalDeserializer().Decode(out.Bytes(), nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					if !apiequality.Semantic.DeepEqual(got, list) {
						t.Error("Kubernetes reads another list from what was written")
					}
				})
			}
			if _, _, err := stream.ReadList(bytes.NewReader(data), e, most-1); !errors.Is(err, stream.ErrTooLarge) ||
				!strings.Contains(err.Error(), fmt.Sprint(most-1)) {
				t.Errorf("%v %s: one byte more than allowed: %v, want an error that tells the limit", e, kind, err)
			}
		}
	}
}

func TestCutLists(t *testing.T) {
	for _, e := range encodings {
		var out bytes.Buffer
		of := stream.Type{GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: e}
		_, raw, err := stream.OpenEnvelope(kubernetesObject(t, e, service("a", 5)))
		if err != nil {
			t.Fatal(err)
		}
		meta := metav1.ListMeta{ResourceVersion: "5"}
		if err := stream.WriteList(&out, of, meta, sequence(stream.Object{Raw: raw})); err != nil {
			t.Fatal(err)
		}
		tail := map[stream.Encoding]int{stream.Protobuf: 4, stream.JSON: 1}[e] // bytes that say nothing
		for n := range out.Len() - tail {
			if _, _, err := stream.ReadList(bytes.NewReader(out.Bytes()[:n]), e, 1<<20); err == nil {
				t.Fatalf("%v cut at %d of %d it is taken for whole", e, n, out.Len())
			}
		}
	}
}

func TestListsAreSorted(t *testing.T) {
	for _, e := range encodings {
		var out bytes.Buffer
		of := stream.Type{GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: e}
		var objects []stream.Object
		for i, namespace := range []string{"a-b", "a", "b", "a.c"} { // by path: "a-b/", "a.c/", "a/"
			o := service("x", i+1)
			o.Namespace = namespace
			_, raw, err := stream.OpenEnvelope(kubernetesObject(t, e, o))
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, stream.Object{Raw: raw})
		}
		meta := metav1.ListMeta{ResourceVersion: "5", Continue: "more"}
		if err := stream.WriteList(&out, of, meta, sequence(objects...)); err != nil {
			t.Fatal(err)
		}
		s, rest, err := stream.ReadList(bytes.NewReader(out.Bytes()), e, 1<<20)
		if err != nil || rest != "more" {
			t.Fatal(err, rest)
		}
		var got []string
		for _, o := range s.Objects {
			got = append(got, o.Key.String())
		}
		if fmt.Sprint(got) != "[a/x a-b/x a.c/x b/x]" {
			t.Errorf("%v: the order is %v", e, got)
		}
	}
}

func TestHostileLists(t *testing.T) {
	list := func(inside string) string {
		return `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"}` + inside + `}`
	}
	item := func(name, revision string) string {
		return `{"metadata":{"name":"` + name + `","resourceVersion":"` + revision + `"}}`
	}
	const typeMeta = "\x0a\x11\x0a\x02v1\x12\x0bServiceList"
	for name, test := range map[string]struct {
		e          stream.Encoding
		body, want string
	}{
		"nothing":             {stream.JSON, ``, "unexpected EOF"},
		"no object":           {stream.JSON, `[]`, "want {"},
		"not a list":          {stream.JSON, `{"kind":"Status","apiVersion":"v1","metadata":{},"items":[]}`, "want a list"},
		"no items":            {stream.JSON, list(``), "without items"},
		"items is an object":  {stream.JSON, list(`,"items":{}`), "want an array"},
		"two items":           {stream.JSON, list(`,"items":[],"items":[]`), "two of items"},
		"item twice":          {stream.JSON, list(`,"items":[` + item("a", "1") + `,` + item("a", "2") + `]`), "a twice"},
		"shown of the future": {stream.JSON, list(`,"items":[` + item("a", edge.Shown(8, 0).String()) + `]`), "of revision"},
		"item of the future":  {stream.JSON, list(`,"items":[` + item("a", "8") + `]`), "of revision 8"},
		"item without name":   {stream.JSON, list(`,"items":[` + item("", "1") + `]`), "item 0"},
		"item is null":        {stream.JSON, list(`,"items":[null]`), "item 0"},
		"no revision":         {stream.JSON, `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[]}`, "no revision"},
		"more behind it":      {stream.JSON, list(`,"items":[]`) + `{}`, "more follows"},
		"deep":                {stream.JSON, list(`,"x":` + strings.Repeat("[", 20000)), "depth"},
		"empty protobuf":      {stream.Protobuf, "", "unexpected EOF"},
		"no magic":            {stream.Protobuf, "{\"kind\":", "want a Protobuf"},
		"only magic":          {stream.Protobuf, "k8s\x00", "empty"},
		"length lies":         {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\xff\xff\xff\xff\x0f", "not allowed"},
		"length negative":     {stream.Protobuf, "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "malformed"},
		"length within limit": {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\xff\xff\x3e\x12\xf0\xff\x3e", "unexpected EOF"},
		"item beyond list":    {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x03\x12\x7fx", "longer than"},
		"number beyond list":  {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x02\x18\xff\x01\x00", "longer than"},
		"item not delimited":  {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x02\x10\x01", "length-delimited"},
		"raw not delimited":   {stream.Protobuf, "k8s\x00\x10\x01", "length-delimited"},
		"two contents":        {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x00\x12\x00", "two contents"},
		"two types":           {stream.Protobuf, "k8s\x00" + typeMeta + typeMeta, "two types"},
		"a group":             {stream.Protobuf, "k8s\x00\x0b", "group"},
		"field 0":             {stream.Protobuf, "k8s\x00\x02\x00", "malformed"},
		"compressed":          {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x00\x1a\x04gzip", "not supported"},
		"empty item":          {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x02\x12\x00", "item 0"},
		"no list metadata":    {stream.Protobuf, "k8s\x00" + typeMeta + "\x12\x00", "no revision"},
		"no encoding":         {0, "", "encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := stream.ReadList(strings.NewReader(test.body), test.e, 1<<20)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if len(s.Objects) > 0 {
				t.Errorf("objects in spite of the error: %v", s.Objects)
			}
		})
	}
	shown := edge.Shown(7, 1<<31)
	s, _, err := stream.ReadList(strings.NewReader(list(`,"items":[`+item("a", shown.String())+`]`)), stream.JSON, 1<<20)
	if err != nil || len(s.Objects) != 1 || s.Objects[0].Revision != shown {
		t.Errorf("an object that a view shows: %v %v", s, err)
	}
	s, _, err = stream.ReadList(strings.NewReader(list(`,"items":null`)), stream.JSON, 1<<20)
	if err != nil || len(s.Objects) != 0 || s.Revision != 7 {
		t.Errorf("items null: %v %v, want an empty list", s, err)
	}
}

func TestListOfWhatChanges(t *testing.T) {
	of := stream.Type{GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: stream.Protobuf}
	pass := 0
	err := stream.WriteList(io.Discard, of, metav1.ListMeta{}, func(yield func(stream.Object, error) bool) {
		pass++
		for range pass {
			if !yield(stream.Object{Raw: []byte("x")}, nil) {
				return
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("error %v, want one that says that the objects changed", err)
	}
}

// A list of which an object cannot be given is not taken for one without it.
func TestListOfWhatCannotBeGiven(t *testing.T) {
	broken := errors.New("broken")
	for _, e := range []stream.Encoding{stream.JSON, stream.Protobuf} {
		of := stream.Type{GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: e}
		var out bytes.Buffer
		err := stream.WriteList(&out, of, metav1.ListMeta{}, func(yield func(stream.Object, error) bool) {
			_ = yield(stream.Object{Raw: []byte("{}")}, nil) && yield(stream.Object{}, broken)
		})
		if !errors.Is(err, broken) {
			t.Errorf("as %v: error %v, after %q", e, err, out.String())
		}
	}
}
