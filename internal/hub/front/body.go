package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyWait is how long the body of a request that is not long-running may take. bodyRate is the average rate, in bytes per
	// second, that a longer body must keep. The sender is on this node. A heartbeat has 500 bytes, the status of a Pod 10 KB.
	bodyWait = 5 * time.Second
	bodyRate = 64 << 10
)

// promptBody is a request's body with a deadline, so that a sender that stalls does not hold its place for longer.
type promptBody struct {
	io.ReadCloser
	control *http.ResponseController
	wait    time.Duration

	mu   sync.Mutex
	read int64
	from time.Time // of the first Read
	over bool      // no deadline may be set any more
}

func newPromptBody(w http.ResponseWriter, r *http.Request) *promptBody {
	return &promptBody{ReadCloser: r.Body, control: http.NewResponseController(w), wait: bodyWait}
}

// Read implements io.Reader.
func (b *promptBody) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.read += int64(n)
	b.mu.Unlock()
	if err != nil {
		b.end(errors.Is(err, io.EOF))
	}
	return n, err
}

// begin sets the deadline for the next read from the bytes that have come. The deadline belongs to the connection, so it uses
// real time. A writer without deadlines, as in tests, has none.
func (b *promptBody) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.from.IsZero() {
		b.from = time.Now() //nolint:forbidigo // a deadline of a connection is real time
	}
	_ = b.control.SetReadDeadline(b.from.Add(b.wait + time.Duration(b.read)*time.Second/bodyRate))
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
