package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/stream"
)

func encoding(protobuf bool) stream.Encoding {
	if protobuf {
		return stream.Protobuf
	}
	return stream.JSON
}

// FuzzFrameReader: whatever is read can be written, and reads back the same. The sizes of the reads do not matter. Nothing
// panics or takes more memory than it was sent.
func FuzzFrameReader(f *testing.F) {
	for _, e := range encodings {
		for _, list := range objects(e) {
			first, second := kubernetesFrame(f, e, watch.Added, list[0]), kubernetesFrame(f, e, watch.Deleted, list[1])
			f.Add(e == stream.Protobuf, bytesOf(first, second))
		}
		f.Add(e == stream.Protobuf, kubernetesFrame(f, e, watch.Error, typed(&metav1.Status{Code: 410}, "v1", "Status")))
		bookmark := service("", 5)
		bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		f.Add(e == stream.Protobuf, kubernetesFrame(f, e, watch.Bookmark, bookmark))
	}
	f.Add(false, []byte(`{"type":"ADDED","object":{"kind":"A","apiVersion":"b/c",`+
		`"metadata":{"n\u0061me":"\u0061","resourceVersion":"1"}}} `))
	f.Fuzz(func(t *testing.T, protobuf bool, data []byte) {
		e := encoding(protobuf)
		events, r, err := read(e, data)
		slow, _, slowErr := readFrom(e, deliveries["by the byte"](bytes.NewReader(data)))
		if len(slow) != len(events) || slowErr.Error() != err.Error() {
			t.Fatalf("by the byte: %d events and %v; at once: %d and %v", len(slow), slowErr, len(events), err)
		}
		if len(events) == 0 {
			return
		}
		var out bytes.Buffer
		w := stream.NewFrameWriter(&out, r.Type())
		for _, event := range events {
			if err := w.Write(event); err != nil {
				t.Fatalf("%v of what was read: %v", event.Type, err)
			}
		}
		again, r2, err := read(e, out.Bytes())
		if !errors.Is(err, io.EOF) || len(again) != len(events) || r2.Type() != r.Type() {
			t.Fatalf("written and read again: %d events of %v, %v; were %d of %v",
				len(again), r2.Type(), err, len(events), r.Type())
		}
		for i := range events {
			a, b := events[i], again[i]
			if a.Type != b.Type || a.Object.Key != b.Object.Key || a.Object.Revision != b.Object.Revision ||
				!bytes.Equal(a.Object.Raw, b.Object.Raw) {
				t.Fatalf("event %d was %v, is %v", i, a, b)
			}
		}
	})
}

// FuzzReadList: as FuzzFrameReader, for lists.
func FuzzReadList(f *testing.F) {
	for _, e := range encodings {
		for kind, list := range lists(e) {
			if data := kubernetesObject(f, e, list); kind != "ConfigMap" {
				f.Add(e == stream.Protobuf, data[:min(len(data), 4000)])
				if len(data) < 4000 {
					f.Add(e == stream.Protobuf, data)
				}
			}
		}
	}
	f.Add(true, []byte("k8s\x00\x0a\x11\x0a\x02v1\x12\x0bServiceList\x12\x0f\x0a\x03\x12\x017\x12\x08\x0a\x06\x0a\x01a\x32\x015"))
	f.Fuzz(func(t *testing.T, protobuf bool, data []byte) {
		e := encoding(protobuf)
		s, rest, err := stream.ReadList(bytes.NewReader(data), e, 1<<20)
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(s.Objects, func(a, b stream.Object) int { return a.Key.Compare(b.Key) }) {
			t.Fatal("not sorted")
		}
		var out bytes.Buffer
		meta := metav1.ListMeta{ResourceVersion: s.Revision.String(), Continue: rest}
		if err := stream.WriteList(&out, s.Type, meta, sequence(s.Objects...)); err != nil {
			t.Fatal(err)
		}
		again, _, err := stream.ReadList(bytes.NewReader(out.Bytes()), e, 2<<20)
		if err != nil || again.Type != s.Type || again.Revision != s.Revision || len(again.Objects) != len(s.Objects) {
			t.Fatalf("written and read again: %v, %v; was %v", again, err, s)
		}
	})
}

// FuzzScan: what is scanned is what Kubernetes' own decoders find, and JSON that they refuse is refused.
func FuzzScan(f *testing.F) {
	for _, e := range encodings {
		for _, list := range objects(e) {
			_, raw, err := stream.OpenEnvelope(kubernetesObject(f, e, list[0]))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(e == stream.Protobuf, raw)
		}
	}
	for _, s := range []string{
		`{}`, `{"metadata":{"name":"\ud800","resourceVersion":"1"}}`,
		`{"a":[1,{"b":[]},-0.5e+7,"\u00e9"],"metadata":null}`, `[`, `{"a":tru}`,
		`{"metadata":{"labels":{"a":"b","c":null},"name":"x","resourceVersion":"007"}}`,
	} {
		f.Add(false, []byte(s))
	}
	f.Fuzz(func(t *testing.T, protobuf bool, raw []byte) {
		e := encoding(protobuf)
		o, err := stream.Scan(e, raw)
		labels, labelsErr := stream.Labels(e, raw)
		meta, metaErr := stream.ScanMeta(e, raw)
		if err != nil {
			return
		}
		if e == stream.JSON && !json.Valid(raw) {
			t.Fatalf("scanned as %s, and it is no JSON", o.Key)
		}
		if metaErr == nil {
			if meta.Name != o.Key.Name || meta.Namespace != o.Key.Namespace {
				t.Fatalf("scanned as %s, and Kubernetes reads %s/%s", o.Key, meta.Namespace, meta.Name)
			}
			if labelsErr == nil && len(labels) != len(meta.Labels) {
				t.Fatalf("labels %v, and Kubernetes reads %v", labels, meta.Labels)
			}
			for k, v := range meta.Labels {
				if labelsErr == nil && labels[k] != v {
					t.Fatalf("labels %v, and Kubernetes reads %v", labels, meta.Labels)
				}
			}
		}
		opened, inside, err := stream.OpenEnvelope(stream.Envelope(stream.Type{
			GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: e,
		}, raw))
		if err != nil && e == stream.Protobuf {
			t.Fatalf("in an envelope: %v", err)
		}
		if err == nil && e == stream.Protobuf && (!bytes.Equal(inside, raw) || opened.Kind != "Service") {
			t.Fatalf("out of its envelope it is a %v, %q; was %q", opened, inside, raw)
		}
	})
}

// FuzzJSON: Scan accepts what encoding/json accepts as an object's body, and nothing else.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`1`, `-`, `0.5`, `01`, `1e5`, `1E+`, `"\u12"`, `"a\"b"`, `[1, 2 ,[ ]]`,
		`{"a":{"b":null}}`, `{"a"}`, `true`, `nul`, `[}`, "\"\x7f\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		text := bytesOf([]byte(`{"metadata":{"name":"a","resourceVersion":"5"},"x":`), value, []byte(`}`))
		_, err := stream.Scan(stream.JSON, text)
		if json.Valid(value) && err != nil {
			t.Fatalf("%q: %v, and encoding/json accepts it", text, err)
		}
		if !json.Valid(text) && err == nil {
			t.Fatalf("%q is accepted, and encoding/json refuses it", text)
		}
	})
}
