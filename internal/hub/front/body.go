package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyWait is how long the body of a request that is not long-running may take, and bodyRate, in bytes per second, what
	// a longer one must bring on average. The sender is on this node. A heartbeat has 500 bytes, the status of a Pod 10 KB.
	bodyWait = 5 * time.Second
	bodyRate = 64 << 10
)

// promptBody is a request's body that must come in time: a sender that stops keeps its place for so long and no longer.
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

// begin sets the deadline for what comes next, by what has come. The deadline is the connection's, so it uses real time; a
// writer without deadlines, as in tests, has none.
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

// leave ends the reading. What net/http still reads of the body, to reach the next request, must come by the deadline.
func (b *promptBody) leave() { b.end(false) }

// end ends the reading. A deadline may remain only on a connection that serves no other request, or that net/http goes on
// reading, which sets its own before the next.
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
