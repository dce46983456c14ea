package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/access"
	"yurtcoordinator/internal/pool/limits"
)

// Bounds of the port for links, which nobody needs a certificate for. They are its own: who fills it keeps nobody from 10270.
const (
	// maxLinked and maxLinkedOfOne bound the connections, and those of one address. A browser has six.
	maxLinked, maxLinkedOfOne = 64, 16
	// maxGreetings and maxGreetingsOfOne bound the handshakes under way, and those of one address.
	maxGreetings, maxGreetingsOfOne = 32, 8
	// linkedHeaders bounds the headers of a request, in bytes: net/http reads 4 KiB more than it is told.
	linkedHeaders = 8<<10 - 4<<10
	// linkedRead, linkedWrite and linkedIdle bound a request, an answer, and the time between two: a page asks every 4 s.
	linkedRead, linkedWrite, linkedIdle = 5 * time.Second, 30 * time.Second, 30 * time.Second
	// linkEnds is how often it is asked whether a link still lives. Each look asks, too.
	linkEnds = time.Second
)

// linkPort shows the page to those who have a link, at a port of its own, which is open while a link lives.
type linkPort struct {
	config Config
	links  *access.Links
	page   http.Handler // asks for a link
	wanted chan chan<- opened
}

// opened is what became of a wish to have the port open.
type opened struct {
	at  []string
	err error
}

func newLinkPort(config Config, links *access.Links, page http.Handler) *linkPort {
	return &linkPort{config: config, links: links, page: page, wanted: make(chan chan<- opened)}
}

// live is a metric.
func (p *linkPort) live() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurt_coordinator_page_links",
		Help: "Links to the page that live. While there is one, the port for links is open.",
	}, func() float64 { return float64(len(p.links.Live())) })
}

// Open opens the port unless it is open, and returns the ADDRESS:PORTs of it. A link must live already.
func (p *linkPort) Open(ctx context.Context) (at []string, err error) {
	answer := make(chan opened, 1)
	select {
	case p.wanted <- answer:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	o := <-answer
	return o.at, o.err
}

// Run opens the port when that is wanted, until ctx ends. The port is closed when it returns.
func (p *linkPort) Run(ctx context.Context) error {
	for {
		select {
		case answer := <-p.wanted:
			p.serve(ctx, answer)
		case <-ctx.Done():
			return nil
		}
	}
}

// serve opens the port, says so, and serves while a link lives.
func (p *linkPort) serve(ctx context.Context, first chan<- opened) {
	log := klog.FromContext(ctx)
	port := edge.PortCoordinatorLinks
	if p.config.linksAnywhere {
		port = 0
	}
	bound, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(p.config.BindAddress, strconv.Itoa(port)))
	if err != nil {
		first <- opened{err: err}
		return
	}
	all := newSpread(bound)
	gate := conns.NewGate(all, conns.GateConfig{
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // it is renewed while links live
				pair, err := tls.LoadX509KeyPair(p.config.TLSCertFile, p.config.TLSPrivateKeyFile)
				return &pair, err
			},
		},
		Handshake: handshakeTime, Waiting: maxGreetings, WaitingPerSource: maxGreetingsOfOne, PerSource: maxLinkedOfOne,
		All: maxLinked, Refused: limits.Refused(log),
	})
	server := &http.Server{
		Handler: p.page, MaxHeaderBytes: linkedHeaders,
		ReadTimeout: linkedRead, WriteTimeout: linkedWrite, IdleTimeout: linkedIdle,
	}
	serving, end := context.WithCancel(ctx)
	addresses, served := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(addresses)
		_ = all.follow(serving, p.config.AddressesFile) // it fails never
	}()
	go func() {
		defer close(served)
		if err := server.Serve(gate); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "The port for links has failed; who makes a link opens it again")
		}
	}()
	log.Info("Opened the port for links to the page", "address", bound.Addr().String())
	first <- opened{at: addressesOf(all)}
	p.whileOneLives(ctx, all, served)
	end()
	_ = server.Close() // ends looks, too
	<-served
	<-addresses
	log.Info("Closed the port for links to the page")
}

// whileOneLives blocks until no link lives, nobody serves any more, or ctx ends.
func (p *linkPort) whileOneLives(ctx context.Context, open *spread, served <-chan struct{}) {
	ticker := time.NewTicker(linkEnds)
	defer ticker.Stop()
	for {
		select {
		case answer := <-p.wanted:
			answer <- opened{at: addressesOf(open)}
		case <-ticker.C:
		case <-served:
			return
		case <-ctx.Done():
			return
		}
		if len(p.links.Live()) == 0 {
			return
		}
	}
}

// addressesOf returns the ADDRESS:PORTs of a listener. One that listens at all addresses names none, but its port.
func addressesOf(s *spread) []string {
	host, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		return nil
	}
	if net.ParseIP(host).IsUnspecified() {
		host = ""
	}
	at := []string{net.JoinHostPort(host, port)}
	for _, a := range s.further() {
		at = append(at, net.JoinHostPort(a.String(), port))
	}
	return at
}
