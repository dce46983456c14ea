// Package succession ends a coordinator when a younger one exists in its own slot. The cloud started the younger one because it
// took the older one's node for dead. If that node has only lost its links, nobody tells the older coordinator. Clients that
// reach it again would take its old data for the pool's.
//
// A coordinator looks for its successor itself, at the addresses of the pool's nodes, and trusts only a certificate. So nobody
// can talk it into ending: not a node, whose word counts for nothing here, and not a thief with the certificate of an older
// coordinator.
//
// While a hub leads at a coordinator, the coordinator looks seldom. A leader has a link to the cloud, and goes to the coordinator
// that the cloud names.
package succession

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/lookout"
	"yurtcoordinator/internal/run"
)

// whileLed is the least time between two looks of a coordinator that a hub leads.
const whileLed = time.Minute

// ErrSucceeded says that a younger coordinator takes this one's place.
var ErrSucceeded = errors.New("a younger coordinator of this pool takes the place of this one, which ends")

// Config is what a Succession needs. All fields but AddressesFile are required. Files are read at each look.
type Config struct {
	// CertFile is the certificate that this coordinator serves with. It says which it is, and for which pool.
	CertFile string
	// CAFile has the authorities that sign the pool's coordinators, and nobody else.
	CAFile string
	// AddressesFile has the addresses of the pool's nodes, one per line. It may be missing. Empty means that nobody looks.
	AddressesFile string
	// Nodes returns what addresses nodes say that they have.
	Nodes func(ctx context.Context) ([]netip.Addr, error)
	// Port is the coordinators'.
	Port uint16
	// Certificate is shown to them.
	Certificate func() (*tls.Certificate, error)
	// Led reports whether a hub leads the pool here.
	Led func(ctx context.Context) bool
	// Dial connects on the LAN.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Ends have the time by which certificates are checked, and spread the looks.
	Ends ends.Ends
}

// Succession looks for a coordinator's successor.
type Succession struct{ cfg Config }

// New returns a Succession. It does no I/O.
func New(cfg Config) *Succession { return &Succession{cfg} }

// Run looks until ctx ends, and returns nil, or ErrSucceeded when there is a younger coordinator.
func (s *Succession) Run(ctx context.Context) error {
	if s.cfg.AddressesFile == "" {
		<-ctx.Done()
		return nil
	}
	complaint := ""
	for {
		n, err := s.scan(ctx)
		if errors.Is(err, ErrSucceeded) {
			return err
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != "" && now != complaint {
			klog.FromContext(ctx).Error(err, "Cannot look for a younger coordinator, trying again")
		}
		complaint = now
		pause := lookout.Pause(n, s.cfg.Ends.Chance)
		if s.cfg.Led(ctx) {
			pause = max(pause, whileLed)
		}
		if run.Pause(ctx, pause) != nil {
			return nil //nolint:nilerr // asked to stop
		}
	}
}

// scan looks at all nodes once, and returns at how many addresses, and ErrSucceeded if a successor was among them.
func (s *Succession) scan(ctx context.Context) (n int, err error) {
	addresses, err := s.addresses()
	if err != nil {
		return 0, err
	}
	nodes, unread := s.cfg.Nodes(ctx) // a coordinator whose store fails looks all the same
	for _, a := range nodes {
		addresses.Insert(netip.AddrPortFrom(a, s.cfg.Port).String())
	}
	own, err := s.own()
	if err != nil {
		return 0, err
	}
	authorities, err := os.ReadFile(s.cfg.CAFile)
	if err != nil {
		return 0, err
	}
	search := lookout.Search{
		Roots: x509.NewCertPool(), Certificate: s.cfg.Certificate, Dial: s.cfg.Dial, Now: s.cfg.Ends.Wall,
		Chance: s.cfg.Ends.Chance,
	}
	search.Roots.AppendCertsFromPEM(authorities)
	if search.ServerName = edge.CoordinatorServerNameIn(own.DNSNames); search.ServerName == "" {
		return 0, fmt.Errorf("%s is for no pool", s.cfg.CertFile)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = unread
	search.Look(ctx, sets.List(addresses), func(at string, is edge.Generation) {
		// Read only now: at one of the addresses is this coordinator itself, and it may have got another certificate meanwhile.
		mine, failed := s.generation()
		if failed != nil {
			err = errors.Join(err, failed)
		} else if is.Younger(mine) {
			err = errors.Join(err, fmt.Errorf("%w: at %s, of generation %v; this one is of generation %v", ErrSucceeded,
				at, is, mine))
			cancel()
		}
	})
	return len(addresses), err
}

func (s *Succession) addresses() (sets.Set[string], error) {
	content, err := os.ReadFile(s.cfg.AddressesFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := sets.New[string]()
	for line := range strings.FieldsSeq(string(content)) {
		if a, err := netip.ParseAddr(line); err == nil {
			all.Insert(netip.AddrPortFrom(a, s.cfg.Port).String())
		}
	}
	return all, nil
}

func (s *Succession) generation() (edge.Generation, error) {
	own, err := s.own()
	if err != nil {
		return edge.Generation{}, err
	}
	return edge.GenerationIn(own)
}

// own returns the certificate that this coordinator serves with.
func (s *Succession) own() (*x509.Certificate, error) {
	content, err := os.ReadFile(s.cfg.CertFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate", s.cfg.CertFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.cfg.CertFile, err)
	}
	return cert, nil
}
