package stream_test

import (
	"maps"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/stream"
)

func TestScan(t *testing.T) {
	for _, e := range encodings {
		for kind, list := range objects(e) {
			for _, o := range list {
				_, raw, err := stream.OpenEnvelope(kubernetesObject(t, e, o))
				if err != nil {
					t.Fatal(err)
				}
				want, ok := o.(metav1.Object)
				if !ok {
					t.Fatalf("%T has no metadata", o)
				}
				got, err := stream.Scan(e, raw)
				if err != nil || got.Key.Namespace != want.GetNamespace() || got.Key.Name != want.GetName() ||
					got.Revision.String() != want.GetResourceVersion() || string(got.Raw) != string(raw) {
					t.Errorf("%v %s: scanned as %s@%s, %v", e, kind, got.Key, got.Revision, err)
				}
				labels, err := stream.Labels(e, raw)
				if err != nil || !maps.Equal(labels, want.GetLabels()) {
					t.Errorf("%v %s: labels %v, %v; want %v", e, kind, labels, err, want.GetLabels())
				}
				meta, err := stream.ScanMeta(e, raw)
				if err != nil || meta.Name != want.GetName() || meta.UID != want.GetUID() ||
					!apiequality.Semantic.DeepEqual(meta.Annotations, want.GetAnnotations()) ||
					!apiequality.Semantic.DeepEqual(meta.OwnerReferences, want.GetOwnerReferences()) ||
					!meta.CreationTimestamp.Equal(ptrTo(want.GetCreationTimestamp())) ||
					len(meta.ManagedFields) != len(want.GetManagedFields()) {
					t.Errorf("%v %s: metadata %v, %v; want %v", e, kind, meta, err, want)
				}
				for n := range min(len(raw), 2000) {
					if cut, err := stream.Scan(e, raw[:n]); err == nil && e == stream.JSON {
						t.Fatalf("%v %s: cut at %d of %d it is scanned as %s", e, kind, n, len(raw), cut.Key)
					}
				}
			}
		}
	}
	if _, err := stream.Scan(stream.Protobuf, []byte("{}")); err == nil {
		t.Error("JSON is scanned as Protobuf")
	}
	if _, err := stream.Scan(stream.JSON, []byte("\x0a\x02")); err == nil {
		t.Error("Protobuf is scanned as JSON")
	}
}

func ptrTo[T any](v T) *T { return &v }

func TestOpenEnvelope(t *testing.T) {
	for name, test := range map[string]struct{ data, want string }{
		"nothing":       {"", "malformed JSON"},
		"text":          {"not found\n", "malformed JSON"},
		"only magic":    {"k8s\x00", "empty"},
		"no kind":       {`{"apiVersion":"v1"}`, "want a kind"},
		"odd version":   {`{"apiVersion":"a/b/c","kind":"X"}`, "unexpected GroupVersion"},
		"garbage after": {`{"apiVersion":"v1","kind":"X"} x`, "after top-level value"},
		"two kinds":     {`{"apiVersion":"v1","kind":"X","kind":"Y"}`, "duplicate field"},
	} {
		if got, _, err := stream.OpenEnvelope([]byte(test.data)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want an error with %q", name, got, err, test.want)
		}
	}
}

func TestEncodingOf(t *testing.T) {
	for contentType, want := range map[string]stream.Encoding{
		"application/json":                                 stream.JSON,
		"application/json; charset=utf-8":                  stream.JSON,
		"application/json;stream=watch":                    stream.JSON,
		"application/vnd.kubernetes.protobuf":              stream.Protobuf,
		"application/vnd.kubernetes.protobuf;stream=watch": stream.Protobuf,
		"application/cbor":                                 0,
		"text/html":                                        0,
		"":                                                 0,
		"application/json;as=Table;v=v1;g=meta.k8s.io":     0,
	} {
		if got, err := stream.EncodingOf(contentType); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %v, %v; want %v", contentType, got, err, want)
		}
	}
	for _, e := range encodings {
		for _, watch := range []bool{false, true} {
			if got, err := stream.EncodingOf(e.ContentType(watch)); got != e {
				t.Errorf("%q, which is written for %v, is read as %v, %v", e.ContentType(watch), e, got, err)
			}
		}
	}
}

// An event in Protobuf costs its bytes and its key, one in JSON some allocations more, however large it is.
func TestAllocationsOfReading(t *testing.T) {
	for e, most := range map[stream.Encoding]float64{stream.Protobuf: 2, stream.JSON: 50} {
		frame := kubernetesFrame(t, e, watch.Modified, slice("web", 5, 50))
		f := stream.NewFrameReader(&endless{data: frame}, e, 1<<20)
		per := testing.AllocsPerRun(200, func() {
			if _, err := f.Read(); err != nil {
				t.Fatal(err)
			}
		})
		if per > most {
			t.Errorf("%v: %v allocations per event, want at most %v", e, per, most)
		}
	}
}

// endless repeats some bytes.
type endless struct {
	data []byte
	at   int
}

func (r *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.data[r.at:])
		n += c
		r.at = (r.at + c) % len(r.data)
	}
	return n, nil
}
