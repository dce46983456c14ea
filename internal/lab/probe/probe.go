// Package probe sends numbered datagrams from one machine of a lab to another, and reports which arrived, when, and how
// long the round trip took. It measures links from their ends, as any program does, and does not know how they are
// made.
package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"yurtcoordinator/internal/lab/onecpu"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "probe"

// Order tells one end what to do, as JSON on its standard input.
type Order struct {
	// Listen is the UDP address to receive datagrams on; empty for the sending end.
	Listen string `json:"listen,omitempty"`
	// To is where the datagrams go: Count of Size bytes, one Every so often, numbered from First.
	To    string        `json:"to,omitempty"`
	First int           `json:"first,omitempty"`
	Count int           `json:"count,omitempty"`
	Size  int           `json:"size,omitempty"`
	Every time.Duration `json:"every,omitempty"`
	// Wait is how long the sender waits for echoes after the last datagram; 0 means that it asks for none.
	Wait time.Duration `json:"wait,omitempty"`
}

// Heard is what arrived at the listening end.
type Heard struct {
	// Numbers are the datagrams' numbers, in the order of arrival.
	Numbers []int `json:"numbers"`
	// Bytes is the size of all but the first, as Ethernet frames. Took is the time from the first to the last. Their
	// quotient is the rate.
	Bytes int           `json:"bytes"`
	Took  time.Duration `json:"took"`
}

// Rate returns bits of Ethernet frames per second; 0 for fewer than two datagrams.
func (h Heard) Rate() float64 {
	if h.Took <= 0 {
		return 0
	}
	return float64(h.Bytes) * 8 / h.Took.Seconds()
}

// Sent is the result of sending.
type Sent struct {
	// Refused counts the datagrams that the machine would not send, or learned to be refused.
	Refused int `json:"refused"`
	// RoundTrips are the times of the echoes that came, in the order of arrival.
	RoundTrips []time.Duration `json:"roundTrips"`
}

// Overhead is what Ethernet, IPv4 and UDP add to a datagram, in bytes.
const Overhead = 14 + 20 + 8

// minSize has room for a datagram's number, its time of sending, and whether it wants an echo.
const minSize = 17

// Main carries out an order. A listening end writes an empty line when it listens, and listens until in ends.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	if o.Listen != "" {
		return listen(ctx, o, in, out)
	}
	sent, err := send(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(sent)
}

func listen(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", o.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // already closed, except after an error
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in) // returns when in ends, in any way
		_ = conn.Close()               // ends hear
	}()
	heard := hear(conn)
	<-ended
	return json.NewEncoder(out).Encode(heard)
}

// hear receives datagrams until conn is closed, and echoes those that ask for it.
func hear(conn net.PacketConn) Heard {
	var h Heard
	var first time.Time
	for buffer := make([]byte, 1<<16); ; {
		n, from, err := conn.ReadFrom(buffer)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return h
		}
		if err != nil || n < minSize {
			continue // an earlier echo was refused
		}
		if len(h.Numbers) == 0 {
			first = now
		} else {
			h.Bytes += n + Overhead
			h.Took = now.Sub(first)
		}
		h.Numbers = append(h.Numbers, int(binary.BigEndian.Uint64(buffer)))
		if buffer[16] != 0 {
			_, _ = conn.WriteTo(buffer[:n], from) // on failure the sender misses it
		}
	}
}

func send(ctx context.Context, o Order) (Sent, error) {
	if o.Size < minSize {
		return Sent{}, fmt.Errorf("datagrams of %d bytes: want %d or more", o.Size, minSize)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", o.To)
	if err != nil {
		return Sent{}, err
	}
	defer conn.Close()
	onecpu.Stay() // so that no datagram overtakes another before it comes to a link
	var s Sent
	began := time.Now()
	var echoes sync.WaitGroup
	echoes.Go(func() { s.RoundTrips = roundTrips(conn, began) })
	datagram := make([]byte, o.Size)
	if o.Wait > 0 {
		datagram[16] = 1
	}
	for i := range o.Count {
		at := time.Duration(i) * o.Every
		if err := pause(ctx, at-time.Since(began)); err != nil {
			break
		}
		binary.BigEndian.PutUint64(datagram, uint64(o.First+i))
		binary.BigEndian.PutUint64(datagram[8:], uint64(time.Since(began)))
		if _, err := conn.Write(datagram); err != nil {
			s.Refused++
		}
	}
	err = pause(ctx, o.Wait)
	conn.Close()
	echoes.Wait()
	return s, err
}

// roundTrips receives echoes until conn is closed.
func roundTrips(conn net.Conn, began time.Time) []time.Duration {
	var all []time.Duration
	for buffer := make([]byte, 1<<16); ; {
		n, err := conn.Read(buffer)
		now := time.Since(began)
		if errors.Is(err, net.ErrClosed) {
			return all
		}
		if err == nil && n >= minSize {
			all = append(all, now-time.Duration(binary.BigEndian.Uint64(buffer[8:])))
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
