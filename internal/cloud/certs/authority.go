package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// maxTrusted bounds how many authorities are trusted at a time. Two is what a rotation needs; more come from keys that were
// lost, whose certificates stay trusted. The newest stay.
const maxTrusted = 8

// Authority is a pool's certificate authority, as it is kept.
type Authority struct {
	// Pair signs.
	Pair
	// Next is trusted already and will sign; there is one only during a rotation.
	Next Pair
	// Trusted is the PEM bundle of all that are trusted.
	Trusted []byte
}

// Step is what is to be done with an Authority.
type Step string

// The steps.
const (
	// StepNone: it is as it should be.
	StepNone Step = ""
	// StepReplace: there is none that can sign. A new one signs at once.
	StepReplace Step = "Made"
	// StepAdd: it is due. A successor is made, and trusted.
	StepAdd Step = "Added"
	// StepPromote: the successor signs from now on.
	StepPromote Step = "Promoted"
	// StepTrust: the bundle lacks one that it should have, or has one that has expired.
	StepTrust Step = "Trusted"
)

// Plan returns the next step and why, or StepNone and when to look again.
func (a Authority) Plan(settle time.Duration, now time.Time) (step Step, why string, again time.Time) {
	signing, broken := usableAuthority(a.Pair, now)
	next, nextBroken := usableAuthority(a.Next, now)
	switch {
	case broken != nil && nextBroken == nil:
		return StepPromote, "the one that signs is of no use: " + broken.Error(), time.Time{}
	case broken != nil:
		return StepReplace, broken.Error(), time.Time{}
	case !a.Next.IsZero() && nextBroken != nil:
		return StepAdd, "the successor is of no use: " + nextBroken.Error(), time.Time{}
	case nextBroken == nil:
		again = settled(signing, next, settle)
		if !now.Before(again) {
			return StepPromote, "the successor is known by now", time.Time{}
		}
	default:
		if again = due(signing); !now.Before(again) {
			return StepAdd, "it expires at " + stamp(signing.NotAfter), time.Time{}
		}
	}
	if !bytes.Equal(a.Trusted, a.trusted(now)) {
		return StepTrust, "the bundle has another content", time.Time{}
	}
	for _, cert := range Certificates(a.Trusted) {
		again = earliest(again, cert.NotAfter.Add(time.Second)) // a certificate is good to the very end
	}
	return StepNone, "", again
}

// settled is when next may sign: after the time given, but halfway to the end of the one before at the latest.
func settled(signing, next *x509.Certificate, settle time.Duration) time.Time {
	made := next.NotBefore.Add(Backdate)
	return earliest(made.Add(settle), made.Add(signing.NotAfter.Sub(made)/2))
}

// Take returns a after a step. What signs and what comes next are always trusted.
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

// trusted is what the bundle should be: the one that signs, its successor, and those of before that have not expired.
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
	case now.Before(cert.NotBefore): // made by a clock that was wrong: nobody trusts what it signs
		err = errors.New("it is not valid before " + stamp(cert.NotBefore))
	}
	return cert, err
}

// Sign makes the certificate that is asked for. It expires no later than the authority.
func (a Authority) Sign(r Request, now time.Time) (Pair, error) {
	parent, err := usableAuthority(a.Pair, now)
	if err != nil {
		return Pair{}, fmt.Errorf("the authority can't sign: %w", err)
	}
	loaded, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("the authority can't sign: %w", err)
	}
	signer, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return Pair{}, fmt.Errorf("the authority can't sign with a %T", loaded.PrivateKey)
	}
	return makePair(r.template(now, earliest(now.Add(r.Life), parent.NotAfter)), parent, signer)
}
