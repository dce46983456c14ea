package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyWait is how long the hub waits for the body of a request that is not long-running, plus one second for each bodyRate
	// bytes that have come. The sender is on this node. A heartbeat has 500 bytes, the status of a Pod 10 KB.
	bodyWait = 5 * time.Second
	bodyRate = 64 << 10
)

// promptBody is a request's body with a deadline, so that a sender that stalls soon frees its place among the requests in flight.
type promptBody struct {
	io.ReadCloser
	control *http.ResponseController
	wait    time.Duration

	mu     sync.Mutex
	read   int64
	waited time.Duration // in Reads alone: between them the hub sends, and a slow line to the cloud is not the sender's fault.
	over   bool          // no deadline may be set any more
}

func newPromptBody(w http.ResponseWriter, r *http.Request) *promptBody {
	return &promptBody{ReadCloser: r.Body, control: http.NewResponseController(w), wait: bodyWait}
}

// Read implements io.Reader.
func (b *promptBody) Read(p []byte) (int, error) {
	began := time.Now() //nolint:forbidigo // a deadline of a connection is real time
	b.begin(began)
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.read, b.waited = b.read+int64(n), b.waited+time.Since(began) //nolint:forbidigo // see above
	b.mu.Unlock()
	if err != nil {
		b.end(errors.Is(err, io.EOF))
	}
	return n, err
}

// begin sets the deadline for the next read, which is later the more bytes have come. It uses real time, because the deadline
// belongs to the connection. Writers in tests may not support deadlines.
func (b *promptBody) begin(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(now.Add(b.wait + time.Duration(b.read)*time.Second/bodyRate - b.waited))
	}
}

// leave ends the hub's reading of the body. net/http may still read the rest, to reach the next request, until the last deadline.
func (b *promptBody) leave() { b.end(false) }

// end ends the reading. After a whole body it removes the deadline, which would otherwise hit the connection's next request.
// After a part of a body the deadline stays, because net/http sets its own before it reads another request.
func (b *promptBody) end(whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	if whole {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}
