package replica

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"yurtcoordinator/internal/stream"
)

// gzipFrom is the size from which an answer is compressed, as in an API server.
const gzipFrom = 128 << 10

// deadlined is a ResponseWriter whose writes have a deadline, so that a client that does not read can't hold memory for long.
type deadlined struct {
	http.ResponseWriter
	control *http.ResponseController
	set     time.Time // when the deadline was set
	failed  error     // of a write or a flush; the client has gone
	// warning is what the header Warning is to say; it is asked for when the answer begins.
	warning func() string
}

func (d *deadlined) WriteHeader(status int) {
	if text := d.warning(); text != "" {
		d.Header().Add("Warning", text)
	}
	d.ResponseWriter.WriteHeader(status)
}

// extend sets the deadline, at most once a second: it is the kernel's business, and not free.
func (d *deadlined) extend() {
	if now := time.Now(); now.Sub(d.set) >= time.Second {
		d.set = now
		// A writer without deadlines is one of a test, or of a server that has its own.
		_ = d.control.SetWriteDeadline(now.Add(writeTimeout))
	}
}

func (d *deadlined) Write(p []byte) (int, error) {
	d.extend()
	n, err := d.ResponseWriter.Write(p)
	if err != nil && d.failed == nil {
		d.failed = err
	}
	return n, err
}

func (d *deadlined) flush() {
	d.extend()
	if err := d.control.Flush(); err != nil && d.failed == nil {
		d.failed = err
	}
}

// rest takes the deadline away: the connection may wait for its next request as long as it likes.
func (d *deadlined) rest() {
	if !d.set.IsZero() {
		_ = d.control.SetWriteDeadline(time.Time{}) // as in extend
	}
}

// gatherBytes is how much of a watch is gathered for one write, in bytes: the most that a frame of HTTP/2 holds as a rule.
const gatherBytes = 16 << 10

// gathers are buffers for those watches that have something to tell. A watch at rest has none.
var gathers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, gatherBytes) }}

// gathered buffers what is written until it is flushed. Otherwise, over HTTP/2, net/http would send each 4 KB on its own, and
// every piece would wake its reader.
type gathered struct {
	*deadlined
	buffer *bufio.Writer
}

func (g *gathered) Write(p []byte) (int, error) {
	if g.buffer == nil {
		g.buffer, _ = gathers.Get().(*bufio.Writer)
		g.buffer.Reset(g.deadlined)
	}
	return g.buffer.Write(p)
}

func (g *gathered) flush() error {
	if g.buffer != nil {
		_ = g.buffer.Flush() // deadlined has noted what failed
		g.buffer.Reset(nil)
		gathers.Put(g.buffer)
		g.buffer = nil
	}
	g.deadlined.flush()
	return g.failed
}

// compressor writes an answer, compressed if it is large and the client can read that.
type compressor struct {
	w      http.ResponseWriter
	status int
	media  string
	asked  bool // for gzip
	held   []byte
	zip    *gzip.Writer
	sent   bool
}

var gzips = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

func newCompressor(w http.ResponseWriter, r *http.Request, status int, e stream.Encoding) *compressor {
	return &compressor{w: w, status: status, media: e.ContentType(false), asked: acceptsGzip(r.Header)}
}

// acceptsGzip reads Accept-Encoding.
func acceptsGzip(header http.Header) bool {
	for _, line := range header.Values("Accept-Encoding") {
		for clause := range strings.SplitSeq(line, ",") {
			coding, quality, _ := strings.Cut(clause, ";")
			if strings.TrimSpace(coding) == "gzip" {
				q := strings.ReplaceAll(quality, " ", "")
				return strings.TrimRight(q, "0") != "q=" && strings.TrimRight(q, "0") != "q=0."
			}
		}
	}
	return false
}

func (c *compressor) Write(p []byte) (int, error) {
	switch {
	case c.zip != nil:
		return c.zip.Write(p)
	case c.sent:
		return c.w.Write(p)
	}
	c.held = append(c.held, p...)
	if len(c.held) < gzipFrom {
		return len(p), nil
	}
	if err := c.begin(c.asked); err != nil {
		return 0, err
	}
	return len(p), nil
}

// begin sends the header and what was held back.
func (c *compressor) begin(compress bool) error {
	c.sent = true
	header := c.w.Header()
	header.Set("Content-Type", c.media)
	header.Add("Vary", "Accept-Encoding")
	var w io.Writer = c.w
	if compress {
		header.Set("Content-Encoding", "gzip")
		if z, ok := gzips.Get().(*gzip.Writer); ok {
			z.Reset(c.w)
			c.zip, w = z, z
		}
	}
	c.w.WriteHeader(c.status)
	_, err := w.Write(c.held)
	c.held = nil
	return err
}

// Close sends what has not been sent.
func (c *compressor) Close() error {
	if !c.sent {
		return c.begin(false)
	}
	if c.zip == nil {
		return nil
	}
	err := c.zip.Close()
	c.zip.Reset(nil)
	gzips.Put(c.zip)
	c.zip = nil
	return err
}
