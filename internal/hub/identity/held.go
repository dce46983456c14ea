package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"yurtcoordinator/internal/edge"
)

// Held is the state of a node's certificates according to its files, whether or not a hub runs.
type Held struct {
	// Status is what a running hub would report. If Client has neither a Problem nor a NotAfter, the node has no certificate
	// yet, but it has a credential to get one. If Authorities has no Problem and lists no authority, the authorities still have
	// to be discovered.
	Status
	// Pair is the certificate by which the cloud knows the node: the hub's own, or else another one on the node; nil means none.
	// PairFrom describes it for people.
	Pair     *tls.Certificate
	PairFrom string
	// Roots are the authorities that verify the cloud, from the file RootsFrom; nil means that they are not known.
	Roots     *x509.CertPool
	RootsFrom string
}

// Look reads the files with which a Manager of this Config would start. It sends no request and changes nothing. It returns an
// error only if New does.
func Look(cfg Config) (Held, error) {
	m, err := New(cfg)
	if err != nil {
		return Held{}, err
	}
	var h Held
	own, wrong := m.load(m.client)
	m.client.adopt(own)
	hubs, hubsWrong := m.load(m.serving)
	m.serving.adopt(hubs)
	h.Status = Status{Client: m.client.state(), Serving: m.serving.state()}
	if hubsWrong != nil && !errors.Is(hubsWrong, fs.ErrNotExist) {
		h.Serving.Problem = hubsWrong.Error()
	}

	credentials, without := m.credentials(m.client)
	var expired []string
	for _, c := range credentials {
		if c.pair != nil && h.Pair == nil {
			h.Pair, h.PairFrom = c.pair, c.what
		}
		if c.pair != nil && m.cfg.Ends.Wall().After(c.pair.Leaf.NotAfter) {
			expired = append(expired, c.what+" expired at "+date(c.pair.Leaf.NotAfter))
		}
	}
	switch {
	case wrong != nil && !errors.Is(wrong, fs.ErrNotExist):
		h.Client.Problem = wrong.Error()
	case len(expired) == len(credentials):
		if without != nil {
			expired = append(expired, without.Error())
		}
		h.Client.Problem = strings.Join(expired, "; ")
	}

	set, from, err := m.heldAuthorities()
	h.holds(set, from, err)
	return h, nil
}

// Look reads the files.
func (g Given) Look(node edge.NodeName) (h Held) {
	set, err := readAuthorities(g.CA)
	h.holds(set, g.CA, err)
	pair, err := g.pair(node)
	if err != nil {
		h.Client.Problem = err.Error()
		return h
	}
	h.Pair, h.PairFrom = pair, g.Cert
	h.Client.NotBefore, h.Client.NotAfter = pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return h
}

func (g Given) pair(node edge.NodeName) (*tls.Certificate, error) {
	certPEM, err := ReadKeyFile(g.Cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := ReadKeyFile(g.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate in %s and key in %s: %w", g.Cert, g.Key, err)
	}
	wanted := request{
		node: node, use: x509.ExtKeyUsageClientAuth, usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}
	if err := wanted.matches(pair.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", g.Cert, err)
	}
	return &pair, nil
}

func (h *Held) holds(set TrustSet, from string, err error) {
	h.Authorities, h.RootsFrom = &Authorities{Trusted: trustedOf(set)}, from
	if err != nil {
		h.Authorities.Problem = err.Error()
		return
	}
	for _, a := range set.Authorities {
		if h.Roots == nil {
			h.Roots = x509.NewCertPool()
		}
		h.Roots.AddCert(a.Cert)
	}
}

// heldAuthorities returns the authorities on the node, and the path of their file. An empty set without an error means that the
// cloud must be asked for them.
func (m *Manager) heldAuthorities() (set TrustSet, from string, err error) {
	if path := m.cfg.CAFile; path != "" {
		set, err = readAuthorities(path)
		return set, path, err
	}
	if set, _, err = m.trusted(); !errors.Is(err, errUnknown) {
		return set, m.disk.File(fileCA), err
	}
	found, _, err := m.namedAuthority()
	if err != nil || len(found.authority) == 0 {
		return set, "", err
	}
	_, content, err := m.pinned(found.authority)
	if err == nil {
		set, _, err = ReadNotes(content, nil)
	}
	return set, found.path, err
}

func readAuthorities(path string) (set TrustSet, err error) {
	content, err := ReadKeyFile(path)
	if err == nil {
		set, _, err = ReadNotes(content, nil)
	}
	if err != nil {
		err = fmt.Errorf("CA file %s: %w", path, err)
	}
	return set, err
}
