package replica

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// pieces notes how long each write was.
type pieces struct {
	*httptest.ResponseRecorder
	written []int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.written = append(p.written, len(b))
	return p.ResponseRecorder.Write(b)
}

// TestABatchIsOneWrite, or net/http would send it in pieces.
func TestABatchIsOneWrite(t *testing.T) {
	w := &pieces{ResponseRecorder: httptest.NewRecorder()}
	g := &gathered{deadlined: &deadlined{ResponseWriter: w, control: http.NewResponseController(w)}}
	var want bytes.Buffer
	plain, out := stream.NewFrameWriter(&want, streamtest.Widgets), stream.NewFrameWriter(g, streamtest.Widgets)
	for _, content := range []string{"a", "b"} {
		o := streamtest.Object(streamtest.Widgets, "default", "w", 7, string(bytes.Repeat([]byte(content), 6<<10)))
		for _, f := range []*stream.FrameWriter{plain, out} {
			if err := f.Write(stream.Event{Type: stream.Modified, Object: o}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(w.written) != 0 {
		t.Errorf("wrote %v before the flush", w.written)
	}
	if err := g.flush(); err != nil {
		t.Fatal(err)
	}
	if len(w.written) != 1 || !bytes.Equal(w.Body.Bytes(), want.Bytes()) || g.buffer != nil || g.failed != nil {
		t.Errorf("wrote pieces of %v, want one of %d; %v", w.written, want.Len(), g.failed)
	}
	if err := g.flush(); err != nil || len(w.written) != 1 {
		t.Errorf("a flush of nothing wrote %v, %v", w.written[1:], err)
	}
}
