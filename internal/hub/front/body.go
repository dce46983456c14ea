package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyWait is how long the hub may wait for the body of a request that is not long-running. bodyRate is the average rate, in
	// bytes per second, that a longer body must keep while the hub waits for it. The sender is on this node. A heartbeat has 500
	// bytes, the status of a Pod 10 KB.
	bodyWait = 5 * time.Second
	bodyRate = 64 << 10
)

// promptBody is a request's body with a deadline, so that a sender that stalls does not hold its place for longer.
type promptBody struct {
	io.ReadCloser
	control *http.ResponseController
	wait    time.Duration

	mu     sync.Mutex
	read   int64
	waited time.Duration // in Reads. Between them the hub sends, and a thin line to the cloud is not the sender's fault.
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

// begin sets the deadline for the next read from the bytes that have come. The deadline belongs to the connection, so it uses
// real time. A writer without deadlines, as in tests, has none.
func (b *promptBody) begin(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(now.Add(b.wait + time.Duration(b.read)*time.Second/bodyRate - b.waited))
	}
}

// leave ends the reading. net/http may still read the rest of the body, to reach the next request; that rest must come by the
// deadline.
func (b *promptBody) leave() { b.end(false) }

// end ends the reading. The deadline may stay only if the connection serves no other request, or if net/http still reads from it
// and then sets a deadline of its own.
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
