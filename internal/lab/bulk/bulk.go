// Package bulk is an image pull as a link sees it: one machine downloads from another over several plain TCP connections at once,
// as fast as the link carries it. It measures how much came, and knows nothing of what is between the two.
package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "bulk"

// Order tells one end what to do, as a line of JSON on its standard input.
type Order struct {
	// Listen is the TCP address at which to send to whoever connects, until standard input ends; empty for the end that
	// downloads.
	Listen string `json:"listen,omitempty"`
	// From is where to download from, over as many Connections at once, for so long.
	From        string        `json:"from,omitempty"`
	Connections int           `json:"connections,omitempty"`
	For         time.Duration `json:"for,omitempty"`
}

// Downloaded is what the downloading end got.
type Downloaded struct {
	// Bytes are TCP's payload.
	Bytes int64 `json:"bytes"`
	// Broken counts connections that could not be made, or ended early. Each was made again.
	Broken int64 `json:"broken"`
}

const (
	// mostConnections and longest bound what a server that nobody ends may do.
	mostConnections = 64
	longest         = 30 * time.Minute
	dialTimeout     = 10 * time.Second
	again           = time.Second // between two tries
)

// Main carries out an order. A sending end writes an empty line when it listens.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	if o.Listen != "" {
		return send(ctx, o.Listen, in, out)
	}
	if o.Connections < 1 || o.Connections > mostConnections || o.For <= 0 || o.For > longest {
		return fmt.Errorf("%d connections for %v: want 1 to %d for at most %v", o.Connections, o.For, mostConnections, longest)
	}
	return json.NewEncoder(out).Encode(download(ctx, o))
}

// send sends to whoever connects until in ends.
func send(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if _, err := fmt.Fprintln(out); err != nil {
		return errors.Join(err, l.Close())
	}
	go func() { // ends with in, at the latest with the process
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var sending sync.WaitGroup
	defer sending.Wait()
	places := make(chan struct{}, mostConnections)
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil // it was closed
		}
		select {
		case places <- struct{}{}:
			sending.Go(func() {
				fill(ctx, conn)
				<-places
			})
		default:
			conn.Close()
		}
	}
}

// fill writes to a connection until the other side has ended it.
func fill(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for block := make([]byte, 32<<10); ; {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

func download(ctx context.Context, o Order) Downloaded {
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	var all, broken atomic.Int64
	var each sync.WaitGroup
	for range o.Connections {
		each.Go(func() {
			for ctx.Err() == nil {
				n := drain(ctx, o.From, &all)
				if ctx.Err() != nil {
					return
				}
				broken.Add(1)
				if n == 0 {
					select {
					case <-time.After(again):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	each.Wait()
	return Downloaded{Bytes: all.Load(), Broken: broken.Load()}
}

// drain reads one connection to its end, and returns how much came.
func drain(ctx context.Context, from string, all *atomic.Int64) (got int64) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", from)
	if err != nil {
		return 0
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for block := make([]byte, 32<<10); ; {
		n, err := conn.Read(block)
		all.Add(int64(n))
		got += int64(n)
		if err != nil {
			return got
		}
	}
}
