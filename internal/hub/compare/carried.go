package compare

import (
	"io"
	"net/http"
	"sync/atomic"
)

// around is what a request and its answer take besides the answer's body: headers, packed, and frames.
const around = 400

// Carried counts the bytes of answers, as they cross the line, and what surrounds them. Make one with NewCarried.
type Carried struct {
	next  http.RoundTripper
	bytes atomic.Int64
}

// NewCarried returns a RoundTripper that counts what next carries.
func NewCarried(next http.RoundTripper) *Carried { return &Carried{next: next} }

// Bytes returns how many bytes have been carried so far.
func (c *Carried) Bytes() int64 { return c.bytes.Load() }

// RoundTrip implements http.RoundTripper.
func (c *Carried) RoundTrip(r *http.Request) (*http.Response, error) {
	c.bytes.Add(around)
	response, err := c.next.RoundTrip(r)
	if err == nil {
		response.Body = counted{response.Body, &c.bytes}
	}
	return response, err
}

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
