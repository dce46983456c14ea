package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Request is a certificate that an Authority must sign.
type Request struct {
	// CommonName and Organizations are the user and groups of a client.
	CommonName    string
	Organizations []string
	// SerialNumber is the one in the subject, not the certificate's own.
	SerialNumber string
	// DNSNames and IPs are a server's names and addresses, in any order.
	DNSNames []string
	IPs      []string
	// Server and Client are the allowed uses.
	Server, Client bool
	Life           time.Duration
}

func (r Request) template(now, end time.Time) *x509.Certificate {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: r.CommonName, Organization: r.Organizations, SerialNumber: r.SerialNumber},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              end,
		DNSNames:              r.DNSNames,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           r.usages(),
	}
	for _, ip := range r.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	return template
}

// until returns the certificate to sign: for the requested life, but no longer than the parent's.
func (r Request) until(now time.Time, parent *x509.Certificate) *x509.Certificate {
	return r.template(now, earliest(now.Add(r.Life), parent.NotAfter))
}

func (r Request) usages() []x509.ExtKeyUsage {
	var usages []x509.ExtKeyUsage
	if r.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

// Plan returns why the present certificate, have, must be replaced. If why is empty, the certificate stays, and again says when
// to call Plan next. One of the authorities in trusted, a PEM bundle, must verify the certificate.
func (r Request) Plan(have Pair, trusted []byte, now time.Time) (why string, again time.Time) {
	cert, err := have.parse()
	if err != nil {
		return err.Error(), time.Time{}
	}
	if differs := r.differs(cert); differs != "" {
		return differs, time.Time{}
	}
	if again = due(cert); !now.Before(again) {
		return "it expires at " + stamp(cert.NotAfter), time.Time{}
	}
	roots := x509.NewCertPool()
	for _, root := range Certificates(trusted) {
		roots.AddCert(root)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: r.usages()}); err != nil {
		return "it is not trusted: " + err.Error(), time.Time{}
	}
	return "", again
}

func (r Request) differs(cert *x509.Certificate) string {
	ips := make([]string, len(cert.IPAddresses))
	for i, ip := range cert.IPAddresses {
		ips[i] = ip.String()
	}
	switch {
	case cert.Subject.CommonName != r.CommonName || !same(cert.Subject.Organization, r.Organizations):
		return fmt.Sprintf("it is for %q, not %q", cert.Subject.CommonName, r.CommonName)
	case cert.Subject.SerialNumber != r.SerialNumber:
		return fmt.Sprintf("it is number %q, not %q", cert.Subject.SerialNumber, r.SerialNumber)
	case !same(cert.DNSNames, r.DNSNames):
		return fmt.Sprintf("it is for %s, not %s", list(cert.DNSNames), list(r.DNSNames))
	case !same(ips, canonical(r.IPs)):
		return fmt.Sprintf("it is for %s, not %s", list(ips), list(canonical(r.IPs)))
	}
	return ""
}

func canonical(ips []string) []string {
	out := make([]string, len(ips))
	for i, ip := range ips {
		out[i] = net.ParseIP(ip).String()
	}
	return out
}

func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

func list(names []string) string {
	return "[" + strings.Join(slices.Sorted(slices.Values(names)), " ") + "]"
}
