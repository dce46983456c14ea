package bulk

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestDownloads: both ends as yurtlab runs them, on the loopback interface.
func TestDownloads(t *testing.T) {
	address := free(t)
	in, order := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Main(t.Context(), Order{Listen: address}, in, out) }()
	if _, err := bufio.NewReader(said).ReadByte(); err != nil {
		t.Fatal(err)
	}
	var got Downloaded
	run(t, Order{From: address, Connections: 3, For: time.Second}, &got)
	if got.Bytes == 0 || got.Broken != 0 {
		t.Errorf("%+v, want something, over whole connections", got)
	}
	order.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	run(t, Order{From: address, Connections: 2, For: time.Second}, &got)
	if got.Bytes != 0 || got.Broken == 0 {
		t.Errorf("from nobody: %+v", got)
	}
}

// TestBounds: an order without bounds is refused.
func TestBounds(t *testing.T) {
	for _, o := range []Order{
		{From: "x", Connections: 0, For: time.Second}, {From: "x", Connections: 65, For: time.Second},
		{From: "x", Connections: 1}, {From: "x", Connections: 1, For: time.Hour},
	} {
		err := Main(t.Context(), o, strings.NewReader(""), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "want 1 to 64") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func run(t *testing.T, o Order, got *Downloaded) {
	t.Helper()
	var out strings.Builder
	if err := Main(t.Context(), o, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.String()), got); err != nil {
		t.Fatal(err)
	}
}

// free returns an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
