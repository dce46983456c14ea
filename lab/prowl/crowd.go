package prowl

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Crowd are connections that carry nothing of use. Of every three, one says nothing; one begins a TLS handshake, a byte a
// second; and one completes the handshake without a certificate, and then says nothing. A connection that was ended is
// replaced.
type Crowd struct {
	// At are the addresses to connect to. From are the addresses to connect from, which the machine must have.
	At   []string `json:"at"`
	From []string `json:"from"`
	// Each is how many connections there are from each address of From to each of At.
	Each int `json:"each"`
	// Header, if not 0, has each connection complete the handshake and begin a request with so many bytes of header. Cert and Key
	// are the certificate that it shows, in PEM.
	Header    int    `json:"header,omitempty"`
	Cert, Key []byte `json:",omitempty"`
}

// again is the pause before a connection that was ended is replaced.
const again = 500 * time.Millisecond

func (c *Crowd) stand(ctx context.Context, report *Report) error {
	var shows tls.Certificate
	if c.Header > 0 {
		var err error
		if shows, err = tls.X509KeyPair(c.Cert, c.Key); err != nil {
			return err
		}
	}
	var standing sync.WaitGroup
	var opened, ended atomic.Int64
	for _, at := range c.At {
		for _, from := range c.From {
			for i := range c.Each {
				standing.Go(func() {
					for ctx.Err() == nil {
						if conn, err := dialFrom(ctx, from, at); err == nil {
							opened.Add(1)
							stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
							if c.Header > 0 {
								c.talk(ctx, conn, shows)
							} else {
								loiter(ctx, conn, i%3)
							}
							if stop() {
								ended.Add(1)
								_ = conn.Close()
							}
						}
						pause(ctx, again)
					}
				})
			}
		}
	}
	standing.Wait()
	report.Opened, report.Ended = opened.Load(), ended.Load()
	return nil
}

// talk begins a request that does not end, and returns when the other side has ended the connection.
func (c *Crowd) talk(ctx context.Context, conn net.Conn, shows tls.Certificate) {
	client := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{shows}, //nolint:gosec // a thief does not mind
	})
	if client.HandshakeContext(ctx) != nil {
		return
	}
	go func() { // ends with the connection
		_, _ = io.WriteString(client, "GET /api HTTP/1.1\r\nHost: coordinator\r\nX: "+strings.Repeat("x", c.Header))
	}()
	_, _ = io.Copy(io.Discard, client)
}

func dialFrom(ctx context.Context, from, at string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return dialer.DialContext(ctx, "tcp", at)
}

// loiter returns when the other side has ended the connection.
func loiter(ctx context.Context, conn net.Conn, way int) {
	switch way {
	case 1:
		go func() { // ends with the connection
			for _, b := range []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				pause(ctx, time.Second)
			}
		}()
	case 2:
		client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a stranger does not mind
		if client.HandshakeContext(ctx) != nil {
			return
		}
		conn = client
	}
	_, _ = io.Copy(io.Discard, conn)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
