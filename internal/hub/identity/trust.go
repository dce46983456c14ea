package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// ForgetNote is for how long the cloud must leave an authority out of its answers before the node no longer trusts it. Until
	// then, the cloud can take the change back.
	ForgetNote = 7 * 24 * time.Hour
	// TrustStep is the most that one answer adds to the time for which an authority has been left out.
	TrustStep = 2 * time.Hour
	// MaxAuthorities bounds a TrustSet, MaxNamed the authorities in one answer.
	MaxAuthorities, MaxNamed = 16, 32
)

// TrustSet is the authorities of a cloud. The zero TrustSet has none.
type TrustSet struct {
	Authorities []Authority
	// Asked is when the cloud answered last; zero means never.
	Asked time.Time
}

// Authority is one authority of a TrustSet.
type Authority struct {
	Cert *x509.Certificate
	// Since is when the node learned of it; zero means that it is one of the first.
	Since time.Time
	// Missing is for how long the cloud has not named it.
	Missing time.Duration
}

// Change is an authority that was added or removed.
type Change struct {
	Cert  *x509.Certificate
	Added bool
	Why   string
}

// These errors say why a list of authorities is not accepted. Then the trusted authorities stay the same.
var (
	ErrNothing = errors.New("no certificate of an authority is in it")
	ErrTooMany = fmt.Errorf("more than %d authorities are too many", MaxAuthorities)
)

// Heard returns the TrustSet after an answer of the cloud. The parameter named has the authorities in the answer, in PEM; the
// parameter by has those that verified the server.
func (s TrustSet) Heard(named []byte, by []*x509.Certificate, now time.Time) (TrustSet, []Change, error) {
	said, err := parse(named, now)
	if err != nil {
		return s, nil, err
	}
	next := TrustSet{Authorities: slices.Clone(s.Authorities), Asked: now}
	var changes []Change
	if slices.ContainsFunc(by, func(c *x509.Certificate) bool { return has(said, c) }) {
		changes = next.miss(said, by, s.Asked, now)
	}
	added, err := next.add(said, now)
	if err != nil {
		return s, nil, err
	}
	return next, append(changes, added...), nil
}

// Given returns the TrustSet with the authorities that a person has put into a file.
func (s TrustSet) Given(named []byte, now time.Time) (TrustSet, []Change, error) {
	said, err := parse(named, now)
	if err != nil {
		return s, nil, err
	}
	next := TrustSet{Authorities: slices.Clone(s.Authorities), Asked: s.Asked}
	changes, err := next.add(said, now)
	if err != nil {
		return s, nil, err
	}
	return next, changes, nil
}

// miss counts for how long each authority has not been named, and removes those whose time is over.
func (s *TrustSet) miss(said, by []*x509.Certificate, asked, now time.Time) (changes []Change) {
	var since time.Duration
	if !asked.IsZero() {
		since = min(max(now.Sub(asked), 0), TrustStep)
	}
	var kept []Authority
	for _, a := range s.Authorities {
		if a.Missing += since; has(said, a.Cert) {
			a.Missing = 0
		}
		why := ""
		switch another := slices.ContainsFunc(by, func(c *x509.Certificate) bool { return !c.Equal(a.Cert) }); {
		case !another:
		case now.After(a.Cert.NotAfter):
			why = "it has expired"
		case a.Missing >= ForgetNote:
			why = fmt.Sprintf("the cloud has not named it for %v", ForgetNote)
		}
		if why == "" {
			kept = append(kept, a)
		} else {
			changes = append(changes, Change{Cert: a.Cert, Why: why})
		}
	}
	s.Authorities = kept
	return changes
}

// add adds the authorities that the set lacks. If it returns ErrTooMany, there is no room for all of them, and the caller must
// not use the set.
func (s *TrustSet) add(said []*x509.Certificate, now time.Time) (changes []Change, err error) {
	for _, c := range said {
		if slices.ContainsFunc(s.Authorities, func(a Authority) bool { return a.Cert.Equal(c) }) {
			continue
		}
		s.Authorities = append(s.Authorities, Authority{Cert: c, Since: now})
		changes = append(changes, Change{Cert: c, Added: true})
	}
	if len(changes) > 0 && len(s.Authorities) > MaxAuthorities {
		return nil, ErrTooMany
	}
	return changes, nil
}

// Early returns when to renew a certificate before its usual time, because the authority that signed it has a successor. The zero
// time means: at the usual time. The cloud may stop accepting the old authority at any time. A node does not know which authority
// signs now, so it requests a certificate to find out. If the old authority still signs, the node asks again later, until two
// weeks after the change.
func (s TrustSet) Early(leaf *x509.Certificate) time.Time {
	// backdated is how far Kubernetes' signer dates certificates back, giveUp how long after a change there are renewals.
	const backdated, giveUp = 5 * time.Minute, 14 * 24 * time.Hour
	i := slices.IndexFunc(s.Authorities, func(a Authority) bool { return leaf.CheckSignatureFrom(a.Cert) == nil })
	if i < 0 {
		return time.Time{}
	}
	signer := s.Authorities[i]
	latest := signer.Since
	for _, a := range s.Authorities {
		if a.Since.After(latest) {
			latest = a.Since
		}
	}
	life, made := leaf.NotAfter.Sub(leaf.NotBefore), leaf.NotBefore.Add(backdated)
	switch {
	case !latest.After(signer.Since), made.Sub(latest) > giveUp:
		return time.Time{}
	case made.Before(latest):
		// Not all nodes at once.
		sum := sha256.Sum256(leaf.Raw)
		spread := min(time.Hour, life/1000)
		return latest.Add(time.Duration(float64(spread) * float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32)))
	case signer.Missing > 0:
		return made.Add(min(time.Hour, life/1000))
	}
	return made.Add(min(12*time.Hour, life/100))
}

// PEM returns the authorities as the content of a file.
func (s TrustSet) PEM() []byte {
	var encoded []byte
	for _, a := range s.Authorities {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: a.Cert.Raw})...)
	}
	return encoded
}

// AuthorityID names an authority in logs and files.
func AuthorityID(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// parse returns the authorities in a PEM bundle that have not expired, each once. Other certificates are left out.
func parse(bundle []byte, now time.Time) ([]*x509.Certificate, error) {
	all, err := cert.ParseCertsPEM(bytes.TrimSpace(bundle))
	if err != nil {
		return nil, ErrNothing
	}
	if len(all) > MaxNamed {
		return nil, ErrTooMany
	}
	var found []*x509.Certificate
	for _, c := range all {
		if c.BasicConstraintsValid && c.IsCA && !now.After(c.NotAfter) && !has(found, c) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, ErrNothing
	}
	return found, nil
}

func has(all []*x509.Certificate, c *x509.Certificate) bool { return slices.ContainsFunc(all, c.Equal) }
