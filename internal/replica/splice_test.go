package replica

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

func FuzzWithRevision(f *testing.F) {
	for _, t := range []stream.Type{streamtest.EndpointSlices, streamtest.Widgets} {
		f.Add(streamtest.Object(t, "a", "x", 5, "content").Raw, uint64(7))
	}
	f.Add([]byte(`{"metadata":null}`), uint64(1))
	f.Add([]byte(`{"metadata":{}}`), uint64(1))
	f.Add([]byte{}, uint64(1))
	f.Add([]byte{0x0a, 0xff}, uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, n uint64) {
		revision := edge.Revision(max(n, 1))
		for _, e := range []stream.Encoding{stream.JSON, stream.Protobuf} {
			given := bytes.Clone(raw)
			out, err := withRevision(e, given, revision)
			if !bytes.Equal(given, raw) {
				t.Fatal("it changed what it was given")
			}
			if err != nil {
				continue
			}
			before, err := stream.ScanMeta(e, raw)
			if err != nil {
				continue // it was no object before either
			}
			after, err := stream.ScanMeta(e, out)
			if err != nil {
				t.Fatalf("%v: %q became %q", err, raw, out)
			}
			if after.ResourceVersion != revision.String() {
				t.Fatalf("resourceVersion %q, want %v", after.ResourceVersion, revision)
			}
			after.ResourceVersion = before.ResourceVersion
			if after.String() != before.String() {
				t.Fatalf("it changed more than the revision:\n%v\n%v", &before, &after)
			}
		}
	})
}

func FuzzOnlyMetadata(f *testing.F) {
	f.Add(streamtest.Object(streamtest.EndpointSlices, "a", "x", 5, "content").Raw)
	f.Add([]byte{0x0a, 0x00, 0x12, 0x00})
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		part, err := onlyMetadata(raw)
		if err != nil {
			return
		}
		want, err := stream.ScanMeta(stream.Protobuf, raw)
		if err != nil {
			return
		}
		var p metav1.PartialObjectMetadata
		if err := p.Unmarshal(part); err != nil || p.ObjectMeta.String() != want.String() {
			t.Fatalf("%v %v, want %v", err, &p.ObjectMeta, &want)
		}
	})
}

func TestParseToken(t *testing.T) {
	for _, want := range []token{{Revision: 5, Namespace: "a", Name: "x"}, {Name: "x", Look: 7}} {
		if got, err := parseToken(want.String()); err != nil || got != want {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	for _, bad := range []string{"", "!", "e30", "bnVsbA", "W10"} {
		if got, err := parseToken(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}
