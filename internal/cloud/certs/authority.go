package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// maxTrusted bounds how many authorities are trusted at a time; the newest stay. A rotation needs two. There can be more,
// because an authority whose key is lost stays trusted.
const maxTrusted = 8

// Authority is a pool's certificate authority, as stored.
type Authority struct {
	// Pair signs.
	Pair
	// Next is already trusted and will sign later. It exists only during a rotation.
	Next Pair
	// Trusted is the PEM bundle of all trusted authorities.
	Trusted []byte
}

// Step is what to do next with an Authority.
type Step string

// The steps.
const (
	// StepNone means that nothing is due.
	StepNone Step = ""
	// StepReplace means that no authority can sign. A new one signs at once.
	StepReplace Step = "Made"
	// StepAdd means that the authority is due for rotation. A successor is made, and trusted.
	StepAdd Step = "Added"
	// StepPromote means that the successor signs from now on.
	StepPromote Step = "Promoted"
	// StepTrust means that the bundle lacks an authority, or holds one that has expired.
	StepTrust Step = "Trusted"
)

// Plan returns the next step and why, or StepNone and when to look again.
func (a Authority) Plan(settle time.Duration, now time.Time) (step Step, why string, again time.Time) {
	signing, broken := usableAuthority(a.Pair, now)
	next, nextBroken := usableAuthority(a.Next, now)
	switch {
	case broken != nil && nextBroken == nil:
		return StepPromote, "the signing authority can't be used: " + broken.Error(), time.Time{}
	case broken != nil:
		return StepReplace, broken.Error(), time.Time{}
	case !a.Next.IsZero() && nextBroken != nil:
		return StepAdd, "the successor can't be used: " + nextBroken.Error(), time.Time{}
	case nextBroken == nil:
		again = settled(signing, next, settle)
		if !now.Before(again) {
			return StepPromote, "the successor has been trusted for long enough", time.Time{}
		}
	default:
		if again = due(signing); !now.Before(again) {
			return StepAdd, "it expires at " + stamp(signing.NotAfter), time.Time{}
		}
	}
	if !bytes.Equal(a.Trusted, a.trusted(now)) {
		return StepTrust, "the trusted authorities have changed", time.Time{}
	}
	for _, cert := range Certificates(a.Trusted) {
		again = earliest(again, cert.NotAfter.Add(time.Second)) // a certificate is valid to the very end
	}
	return StepNone, "", again
}

// settled returns when the authority next may begin to sign: the duration settle after it was made. At the latest it may begin
// halfway from its making to the end of the present authority.
func settled(signing, next *x509.Certificate, settle time.Duration) time.Time {
	made := next.NotBefore.Add(Backdate)
	return earliest(made.Add(settle), made.Add(signing.NotAfter.Sub(made)/2))
}

// Take returns a after a step. The signing authority and its successor are always trusted.
func (a Authority) Take(step Step, commonName string, life time.Duration, now time.Time) (Authority, error) {
	switch step {
	case StepReplace, StepAdd:
		made, err := newAuthority(commonName, life, now)
		if err != nil {
			return Authority{}, err
		}
		if step == StepReplace {
			a.Pair, a.Next = made, Pair{}
		} else {
			a.Next = made
		}
	case StepPromote:
		a.Trusted = Bundle(a.Trusted, a.Cert)
		a.Pair, a.Next = a.Next, Pair{}
	case StepTrust, StepNone:
	}
	a.Trusted = a.trusted(now)
	return a, nil
}

// trusted returns the wanted bundle: the signing authority, its successor, and earlier ones that have not expired.
func (a Authority) trusted(now time.Time) []byte {
	var out []byte
	n := 0
	for _, cert := range Certificates(Bundle(a.Cert, a.Next.Cert, a.Trusted)) {
		if cert.IsCA && !now.After(cert.NotAfter) && n < maxTrusted {
			out = append(out, encodeCert(cert.Raw)...)
			n++
		}
	}
	return out
}

func newAuthority(commonName string, life time.Duration, now time.Time) (Pair, error) {
	return makePair(&x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		MaxPathLenZero:        true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}, nil, nil)
}

func usableAuthority(p Pair, now time.Time) (*x509.Certificate, error) {
	if err := p.Usable(now); err != nil {
		return nil, err
	}
	cert, err := p.parse()
	switch {
	case err != nil:
	case !cert.IsCA:
		err = errors.New("it is not an authority's")
	case now.Before(cert.NotBefore): // made by a wrong clock: nobody trusts what it signs
		err = errors.New("it is not valid before " + stamp(cert.NotBefore))
	}
	return cert, err
}

// Sign makes the requested certificate and its key. It expires no later than the authority.
func (a Authority) Sign(r Request, now time.Time) (Pair, error) {
	parent, signer, err := a.signer(now)
	if err != nil {
		return Pair{}, err
	}
	return makePair(r.until(now, parent), parent, signer)
}

// SignFor makes the requested certificate, in PEM, for somebody else's key. It expires no later than the authority.
func (a Authority) SignFor(public crypto.PublicKey, r Request, now time.Time) ([]byte, error) {
	parent, signer, err := a.signer(now)
	if err != nil {
		return nil, err
	}
	return issue(r.until(now, parent), parent, public, signer)
}

func (a Authority) signer(now time.Time) (*x509.Certificate, crypto.Signer, error) {
	parent, err := usableAuthority(a.Pair, now)
	if err != nil {
		return nil, nil, fmt.Errorf("the authority can't sign: %w", err)
	}
	key, err := parseKey(a.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("the authority can't sign: %w", err)
	}
	return parent, key, nil
}
