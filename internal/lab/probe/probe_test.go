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
	go func() { ended <- Main(t.Context(), Order{Listen: address}, in, out) }()
	if _, err := io.ReadFull(said, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	var one, two bytes.Buffer
	for _, o := range []struct {
		order Order
		to    *bytes.Buffer
	}{
		{Order{To: address, Count: 2, Size: 17, Every: 20 * time.Millisecond}, &two},
		{Order{To: address, Count: 3, Size: 100, Wait: time.Second}, &one}, // by its echoes all is heard
	} {
		if err := Main(t.Context(), o.order, nil, o.to); err != nil {
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
	for _, o := range []Order{{To: "127.0.0.1:9", Size: 16}, {Listen: "nowhere"}} {
		if err := Main(t.Context(), o, nil, io.Discard); err == nil {
			t.Errorf("%+v is obeyed", o)
		}
	}
}
