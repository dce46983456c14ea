package front

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStalledBodies checks a program other than kubelet that sends as many requests as there are places, whose bodies do not
// come. kubelet's requests are served meanwhile, and the program's are ended in time.
func TestStalledBodies(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	})
	const places = 20
	handler := newFront(Config{Cloud: u, MaxMutating: places})
	address, _ := serve(t, handler)
	stalled := make([]net.Conn, places)
	for i := range stalled {
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST /api/v1/namespaces/d/pods HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer x%d\r\n"+
			"Content-Length: 1000\r\n\r\nhalf", i%shareOfOne)
		if err != nil {
			t.Fatal(err)
		}
		stalled[i] = conn
	}
	start := time.Now()
	eventually(t, func() error {
		if n := handler.limits[others][mutating].now.Load(); n < places {
			return fmt.Errorf("%d of %d have arrived", n, places)
		}
		return nil
	})
	post := func(header ...string) int {
		response, err := do(t, http.MethodPost, address+"/api/v1/namespaces/d/pods", strings.NewReader("{}"), header...)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if code := post("Authorization", "Bearer y"); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	if code := post(); code != http.StatusCreated {
		t.Errorf("kubelet: %d", code)
	}
	for _, conn := range stalled {
		if err := conn.SetReadDeadline(start.Add(4 * bodyWait)); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(conn)
		if err != nil || strings.Contains(string(text), " 201 ") {
			t.Fatalf("a stalled request: %q, %v", text, err)
		}
	}
	if took := time.Since(start); took < bodyWait/2 {
		t.Errorf("they were cut after %v", took)
	}
	if code := post("Authorization", "Bearer y"); code != http.StatusCreated {
		t.Errorf("after they were cut: %d", code)
	}
	// The connections of those that come in time serve other requests, later than any deadline.
	time.Sleep(bodyWait + bodyWait/5)
	if code := post(); code != http.StatusCreated {
		t.Errorf("later: %d", code)
	}
}

// TestABodyOverAThinLine: the server reads a body at 32 KB/s. The sender has it ready, and waits.
func TestABodyOverAThinLine(t *testing.T) {
	const size, rate = 640 << 10, 32 << 10 // for twice as long as a sender at bodyRate may take
	waits := &deadlines{}
	body := newPromptBody(waits, httptest.NewRequest(http.MethodPost, "/", io.LimitReader(always{}, size)))
	synctest.Test(t, func(t *testing.T) {
		buffer := make([]byte, 4<<10)
		for read := 0; ; {
			n, err := body.Read(buffer)
			if read += n; err != nil {
				if read != size {
					t.Errorf("read %d bytes: %v", read, err)
				}
				return
			}
			if left := time.Until(waits.at); left < bodyWait {
				t.Fatalf("after %d bytes the sender has %v left", read, left)
			}
			time.Sleep(time.Duration(n) * time.Second / rate)
		}
	})
}

// always is a body without an end.
type always struct{}

func (always) Read(p []byte) (int, error) { return len(p), nil }

// deadlines is a writer that has a deadline for reading.
type deadlines struct {
	http.ResponseWriter
	at time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		d.at = at
	}
	return nil
}
