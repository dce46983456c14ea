package probe

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"
)

func TestListenAndSend(t *testing.T) {
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.LocalAddr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}

	in, order := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Main(t.Context(), in, out) }()
	go func() { _ = json.NewEncoder(order).Encode(Order{Listen: address}) }()
	if _, err := io.ReadFull(said, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	var one, two bytes.Buffer
	for _, o := range []struct {
		text string
		to   *bytes.Buffer
	}{
		{`{"to": "` + address + `", "count": 2, "size": 17, "every": 20000000}`, &two},
		{`{"to": "` + address + `", "count": 3, "size": 100, "wait": 1000000000}`, &one}, // by its echoes all is heard
	} {
		if err := Main(t.Context(), bytes.NewBufferString(o.text+"\n"), o.to); err != nil {
			t.Fatal(err)
		}
	}
	var echoed, silent Sent
	if err := json.Unmarshal(one.Bytes(), &echoed); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(two.Bytes(), &silent); err != nil {
		t.Fatal(err)
	}
	if len(echoed.RoundTrips) != 3 || echoed.Refused != 0 || len(silent.RoundTrips) != 0 {
		t.Errorf("%+v and %+v", echoed, silent)
	}
	order.Close()
	var heard Heard
	if err := json.NewDecoder(said).Decode(&heard); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(heard.Numbers) != 5 || heard.Took < 20*time.Millisecond {
		t.Errorf("%+v", heard)
	}
}

func TestRate(t *testing.T) {
	if got := (Heard{Bytes: 1250, Took: 10 * time.Millisecond}).Rate(); got != 1e6 {
		t.Errorf("%v bits a second", got)
	}
	if got := (Heard{}).Rate(); got != 0 {
		t.Errorf("%v bits a second of nothing", got)
	}
}

func TestWrongOrders(t *testing.T) {
	for _, text := range []string{"", "{\n", `{"to": "127.0.0.1:9", "size": 16}` + "\n", `{"listen": "nowhere"}` + "\n"} {
		if err := Main(t.Context(), bytes.NewBufferString(text), io.Discard); err == nil {
			t.Errorf("%q is obeyed", text)
		}
	}
}
