package lab

import (
	"os"
	"path/filepath"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/pki"
)

// knownAuthorities is the file of all the cloud's authorities, nextDir the directory of the next one's files.
const knownAuthorities, nextDir = "known.crt", "next"

// cloudClients are the clients whose certificates the next authority signs, if there is one, so that they work without the
// first.
var cloudClients = []string{"admin", "kube-controller-manager", "kube-scheduler", "coordinator-controller"}

// Authorities are the files with which a lab with Config.NextAuthority changes the cloud's authority, as flags of Client.Cloud.
type Authorities struct {
	// Old and New have one authority each, Both has both. NewKey signs for New.
	Old, New, Both, NewKey string
	// Cert and Key are the API server's, signed by New.
	Cert, Key string
}

// Authorities returns the files of the cloud's authorities.
func (c *Client) Authorities() Authorities {
	keys := filepath.Join(c.dir, "machines", cloudMachine, keysDir) // the cloud's machine sees no others
	at := func(name ...string) string { return filepath.Join(append([]string{keys}, name...)...) }
	return Authorities{
		Old: at("ca.crt"), New: at(nextDir, "ca.crt"), Both: at(knownAuthorities), NewKey: at(nextDir, "ca.key"),
		Cert: at(nextDir, apiServerKeys+".crt"), Key: at(nextDir, apiServerKeys+".key"),
	}
}

// TrustClients makes a coordinator that the lab runs on a node verify its clients by this bundle.
func (c *Client) TrustClients(node string, bundle []byte) error {
	return c.replace(node, filepath.Join(keysDir, "ca.crt"), string(bundle))
}

// nextAuthority makes the next authority, issues the API server's certificate from it, and writes knownAuthorities with both
// authorities. Without Config.NextAuthority it returns the first authority, and knownAuthorities has only that.
func (l *Lab) nextAuthority(first *pki.Authority) (*pki.Authority, error) {
	bundle, err := os.ReadFile(first.Files().Cert)
	if err != nil {
		return nil, err
	}
	next := first
	if l.cfg.NextAuthority {
		if next, err = pki.Create(filepath.Join(l.pki(), nextDir), "ca", clock.RealClock{}); err != nil {
			return nil, err
		}
		if _, err := next.Issue(l.apiServer()); err != nil {
			return nil, err
		}
		more, err := os.ReadFile(next.Files().Cert)
		if err != nil {
			return nil, err
		}
		bundle = append(bundle, more...)
	}
	return next, os.WriteFile(filepath.Join(l.pki(), knownAuthorities), bundle, 0o600)
}
