package stream_test

import (
	"bytes"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"yurtcoordinator/internal/stream"
)

// An event of an EndpointSlice with 50 endpoints, in each encoding.

func BenchmarkReadFrame(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			frame := kubernetesFrame(b, e, watch.Modified, slice("web", 5, 50))
			f := stream.NewFrameReader(&endless{data: frame}, e, 1<<20)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadFrameKubernetes is what client-go does with the same bytes.
func BenchmarkReadFrameKubernetes(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			frame := kubernetesFrame(b, e, watch.Modified, slice("web", 5, 50))
			info := mediaType(e)
			reader := info.StreamSerializer.NewFrameReader(io.NopCloser(&endless{data: frame}))
			d := restwatch.NewDecoder(streaming.NewDecoder(reader, info.StreamSerializer.Serializer),
				scheme.Codecs.UniversalDeserializer())
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteFrame(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			events, f, _ := read(e, kubernetesFrame(b, e, watch.Modified, slice("web", 5, 50)))
			w := stream.NewFrameWriter(io.Discard, f.Type())
			b.SetBytes(int64(len(events[0].Object.Raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Write(events[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWriteFrameKubernetes encodes the same object as an API server does for each watcher.
func BenchmarkWriteFrameKubernetes(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			o := slice("web", 5, 50)
			b.ReportAllocs()
			for b.Loop() {
				kubernetesFrame(b, e, watch.Modified, o)
			}
		})
	}
}

// A list of 100 EndpointSlices of 0 to 99 endpoints.
func BenchmarkReadList(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			data := kubernetesObject(b, e, lists(e)["EndpointSlice"])
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := stream.ReadList(bytes.NewReader(data), e, 1<<30); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadListKubernetes(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			data := kubernetesObject(b, e, lists(e)["EndpointSlice"])
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteList(b *testing.B) {
	for _, e := range encodings {
		b.Run(e.String(), func(b *testing.B) {
			data := kubernetesObject(b, e, lists(e)["EndpointSlice"])
			s, _, err := stream.ReadList(bytes.NewReader(data), e, 1<<30)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				meta := metav1.ListMeta{ResourceVersion: "100"}
				if err := stream.WriteList(io.Discard, s.Type, meta, sequence(s.Objects...)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
