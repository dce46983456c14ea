// Package prowl is a stranger on a machine of a lab: a local user, or a container on the host's network. The stranger sends
// requests without credentials, takes a port that another program has left, listens to the loopback interface, occupies a
// server with idle connections, and reports what it got.
package prowl

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "prowl"

// Nobody is the user and the group that a stranger has.
const Nobody = 65534

// Order tells a stranger what to do, as a line of JSON on its standard input. Exactly one of Ask, Squat, Sniff and Crowd
// is set.
type Order struct {
	// Ask are requests to make, in this order; Read are files to read.
	Ask  []Request `json:"ask,omitempty"`
	Read []string  `json:"read,omitempty"`
	// Squat is the address to listen on until standard input ends.
	Squat string `json:"squat,omitempty"`
	// Sniff are texts to look for in the frames that cross the loopback interface, until standard input ends.
	Sniff []string `json:"sniff,omitempty"`
	// Crowd are the connections to keep standing until standard input ends.
	Crowd *Crowd `json:"crowd,omitempty"`
}

// Request is one request to a server whose certificate is not looked at.
type Request struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	Host   string `json:"host,omitempty"`
	Body   string `json:"body,omitempty"`
}

// Report is what a stranger has got.
type Report struct {
	// Codes are the status codes of the answers to Ask. Errors say why each file of Read was refused; empty for a file that was
	// read.
	Codes  []int    `json:"codes,omitempty"`
	Errors []string `json:"errors,omitempty"`
	// Connections is how many connections came to Squat. Trusted counts those whose clients went on after they saw the
	// stranger's certificate. Said is what clients sent in the clear, or in a trusted connection.
	Connections int      `json:"connections,omitempty"`
	Trusted     int      `json:"trusted,omitempty"`
	Said        []string `json:"said,omitempty"`
	// Frames is how many frames crossed the loopback interface. Found are the texts of Sniff that were in one.
	Frames int      `json:"frames,omitempty"`
	Found  []string `json:"found,omitempty"`
	// Opened counts the connections of Crowd, and Ended those of them that the other side has ended.
	Opened int64 `json:"opened,omitempty"`
	Ended  int64 `json:"ended,omitempty"`
}

// Main carries out an order. Once it listens, or before it asks, it writes an empty line.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	var err error
	raw := -1
	if len(o.Sniff) > 0 { // a container has this right, if nobody takes it away
		if raw, err = onLoopback(); err != nil {
			return err
		}
		defer func() { _ = unix.Close(raw) }()
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(Nobody), syscall.Setuid(Nobody)); err != nil {
		return fmt.Errorf("become nobody: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}
	var report Report
	switch {
	case raw >= 0:
		go ended() // ends with the process at the latest
		_, _ = fmt.Fprintln(out)
		err = sniff(ctx, raw, o.Sniff, &report)
	case o.Crowd != nil:
		go ended()
		_, _ = fmt.Fprintln(out)
		err = o.Crowd.stand(ctx, &report)
	case o.Squat != "":
		go ended()
		err = squat(ctx, o.Squat, out, &report)
	default:
		_, _ = fmt.Fprintln(out)
		err = ask(ctx, o, &report)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(report))
}

func ask(ctx context.Context, o Order, report *Report) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a thief does not mind
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for _, q := range o.Ask {
		r, err := http.NewRequestWithContext(ctx, q.Method, q.URL, strings.NewReader(q.Body))
		if err != nil {
			return err
		}
		r.Host = q.Host
		r.Header.Set("User-Agent", "prowl")
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, answer.Body) // only whether it is answered matters
		answer.Body.Close()
		report.Codes = append(report.Codes, answer.StatusCode)
	}
	for _, path := range o.Read {
		said := ""
		if _, err := os.ReadFile(path); err != nil {
			said = err.Error()
		}
		report.Errors = append(report.Errors, said)
	}
	return nil
}

// squat listens with a certificate of its own for whatever name is asked for.
func squat(ctx context.Context, address string, out io.Writer, report *Report) error {
	pair, err := certificate()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	_, _ = fmt.Fprintln(out)
	var mu sync.Mutex
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return nil // it was closed
		}
		mu.Lock()
		report.Connections++
		mu.Unlock()
		serving.Go(func() {
			defer conn.Close()
			trusted, said := lure(ctx, conn, pair)
			mu.Lock()
			defer mu.Unlock()
			if trusted {
				report.Trusted++
			}
			if said != "" {
				report.Said = append(report.Said, said)
			}
		})
	}
}

// lure returns what a client says, and whether it trusts the certificate.
func lure(ctx context.Context, conn net.Conn, pair tls.Certificate) (trusted bool, said string) {
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	seen := &tee{Conn: conn}
	secure := tls.Server(seen, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	buffer := make([]byte, 4096)
	if err := secure.HandshakeContext(ctx); err != nil {
		if first := seen.read.Bytes(); len(first) > 0 && first[0] != 0x16 { // no TLS record: it speaks in the clear
			return false, string(first)
		}
		return false, ""
	}
	// With TLS 1.3 the server's part ends before the client has looked at the certificate.
	n, err := secure.Read(buffer)
	return err == nil, string(buffer[:n])
}

// tee keeps the first bytes of what is read.
type tee struct {
	net.Conn
	read bytes.Buffer
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if t.read.Len() < 4096 {
		t.read.Write(p[:n])
	}
	return n, err
}

func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// everything is ETH_P_ALL in the network's order of bytes.
const everything = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8

// onLoopback returns a socket that receives what crosses the loopback interface.
func onLoopback() (int, error) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		return -1, err
	}
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
	if err != nil {
		return -1, fmt.Errorf("a socket that receives everything: %w", err)
	}
	err = errors.Join(
		unix.Bind(raw, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: loopback.Index}),
		unix.SetsockoptInt(raw, unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<20),
		unix.SetsockoptTimeval(raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
	)
	if err != nil {
		return -1, errors.Join(err, unix.Close(raw))
	}
	return raw, nil
}

func sniff(ctx context.Context, raw int, texts []string, report *Report) error {
	frame, found := make([]byte, 1<<17), map[string]bool{}
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(raw, frame, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		report.Frames++
		for _, text := range texts {
			if !found[text] && bytes.Contains(frame[:n], []byte(text)) {
				found[text] = true
				report.Found = append(report.Found, text)
			}
		}
	}
	return nil
}
