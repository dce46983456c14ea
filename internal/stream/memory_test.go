package stream_test

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// idle gives what it has, then asks the test what to do.
type idle struct {
	bytes.Reader
	empty func()
}

func (i *idle) Read(p []byte) (int, error) {
	if i.Len() == 0 {
		i.empty()
		return 0, io.EOF
	}
	return i.Reader.Read(p)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIdleWatches says what a watch holds that waits for its next event, after it has had a burst.
func BenchmarkIdleWatches(b *testing.B) {
	const watches = 1000
	var wire bytes.Buffer
	frames := stream.NewFrameWriter(&wire, streamtest.EndpointSlices)
	for i := range 20 {
		o := streamtest.Object(streamtest.EndpointSlices, "a", "b", 10, string(bytes.Repeat([]byte("x"), 1<<(i%14))))
		if err := frames.Write(stream.Event{Type: stream.Added, Object: o}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		before := heap()
		all := make([]*stream.FrameReader, watches)
		rests, told := make(chan struct{}, watches), make(chan struct{})
		done := make(chan struct{}, watches)
		for i := range all {
			far := &idle{empty: func() { rests <- struct{}{}; <-told }}
			far.Reset(wire.Bytes())
			all[i] = stream.NewFrameReader(far, stream.Protobuf, 1<<20)
			go func() {
				for {
					if _, err := all[i].Read(); err != nil {
						done <- struct{}{}
						return
					}
				}
			}()
		}
		for range all {
			<-rests
		}
		b.ReportMetric(float64(heap()-before)/watches, "heap-B/watch")
		close(told)
		for range all {
			<-done
		}
	}
}
