package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T, name string) *Authority {
	t.Helper()
	a, err := Create(filepath.Join(t.TempDir(), "pki"), name, clocktesting.NewFakePassiveClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, r Request) (Pair, *x509.Certificate) {
	t.Helper()
	pair, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, loaded.Leaf
}

func TestVerify(t *testing.T) {
	ours, stranger := authority(t, "ca"), authority(t, "ca")
	server := Request{
		Name: "apiserver", Server: true, IPs: []net.IP{net.IPv4(10, 77, 0, 1)},
		DNSNames: []string{"kubernetes.default.svc"},
	}
	client := Request{Name: "n1", CommonName: "system:node:n1", Organizations: []string{"system:nodes"}, Client: true}
	for _, test := range []struct {
		name   string
		by     *Authority
		req    Request
		usage  x509.ExtKeyUsage
		called string
		at     time.Time
		wrong  string // what x509.Verify says; empty: nothing
	}{
		{"server by IP", ours, server, x509.ExtKeyUsageServerAuth, "10.77.0.1", noon, ""},
		{"server by name", ours, server, x509.ExtKeyUsageServerAuth, "kubernetes.default.svc", noon, ""},
		{"server by another IP", ours, server, x509.ExtKeyUsageServerAuth, "10.77.0.2", noon, "10.77.0.2"},
		{"server as client", ours, server, x509.ExtKeyUsageClientAuth, "", noon, "incompatible key usage"},
		{"client", ours, client, x509.ExtKeyUsageClientAuth, "", noon, ""},
		{"client as server", ours, client, x509.ExtKeyUsageServerAuth, "", noon, "incompatible key usage"},
		{"clock five minutes slow", ours, client, x509.ExtKeyUsageClientAuth, "", noon.Add(-5 * time.Minute), ""},
		{"clock five minutes fast", ours, client, x509.ExtKeyUsageClientAuth, "", noon.Add(5 * time.Minute), ""},
		{"after a year", ours, client, x509.ExtKeyUsageClientAuth, "", noon.Add(DefaultTTL + time.Second), "expired"},
		{"expired", ours, client.Expired(noon), x509.ExtKeyUsageClientAuth, "", noon, "expired"},
		{"expired, while it was valid", ours, client.Expired(noon), x509.ExtKeyUsageClientAuth, "",
			noon.Add(-2 * time.Minute), ""},
		{"of an authority of the same name", stranger, client, x509.ExtKeyUsageClientAuth, "", noon,
			"unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, cert := issue(t, test.by, test.req)
			roots := x509.NewCertPool()
			roots.AddCert(ours.cert)
			_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: test.at, DNSName: test.called,
				KeyUsages: []x509.ExtKeyUsage{test.usage}})
			if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("Verify: %v, want an error that says %q", err, test.wrong)
			}
		})
	}
}

func TestIssued(t *testing.T) {
	a := authority(t, "ca")
	pair, cert := issue(t, a, Request{
		Name: "n1", CommonName: "system:node:n1", Organizations: []string{"system:nodes", "x"},
		Client: true, TTL: 90 * time.Second,
	})
	slices.Sort(cert.Subject.Organization) // a set, in DER
	if cert.Subject.CommonName != "system:node:n1" ||
		!slices.Equal(cert.Subject.Organization, []string{"system:nodes", "x"}) {
		t.Errorf("subject %v", cert.Subject)
	}
	if !cert.NotBefore.Equal(noon.Add(-Backdate)) || !cert.NotAfter.Equal(noon.Add(90*time.Second)) {
		t.Errorf("valid from %s to %s", cert.NotBefore, cert.NotAfter)
	}
	if cert.IsCA || !cert.BasicConstraintsValid {
		t.Error("it may sign others")
	}
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve.Params().BitSize != 256 {
		t.Errorf("key %T", cert.PublicKey)
	}
	if want := (Pair{filepath.Join(a.dir, "n1.crt"), filepath.Join(a.dir, "n1.key")}); pair != want {
		t.Errorf("files %v, want %v", pair, want)
	}
	_, again := issue(t, a, Request{Name: "n1", Client: true})
	if again.SerialNumber.Cmp(cert.SerialNumber) == 0 || again.Subject.CommonName != "n1" {
		t.Errorf("reissued: serial %v, name %s", again.SerialNumber, again.Subject.CommonName)
	}
}

func TestRefusedRequests(t *testing.T) {
	a := authority(t, "ca")
	for name, r := range map[string]Request{
		"no name":             {Client: true},
		"name of a path":      {Name: "../n1", Client: true},
		"no use":              {Name: "n1"},
		"server of no name":   {Name: "n1", Server: true},
		"no time to live":     {Name: "n1", Client: true, TTL: -time.Second},
		"the directory":       {Name: ".", Client: true},
		"the directory above": {Name: "..", Client: true},
	} {
		if _, err := a.Issue(r); err == nil {
			t.Errorf("%s: issued", name)
		}
	}
	if _, err := Create(t.TempDir(), "a/b", nil); err == nil {
		t.Error("an authority with the name of a path")
	}
}

func TestFilesArePrivate(t *testing.T) {
	a := authority(t, "ca")
	pair, _ := issue(t, a, Request{Name: "n1", Client: true})
	if _, err := CreateServiceAccountKeys(a.dir, "sa"); err != nil {
		t.Fatal(err)
	}
	err := WriteKubeconfig(filepath.Join(a.dir, "n1.kubeconfig"), Access{Server: "https://10.77.0.1:6443",
		Authority: a.Files().Cert, Client: pair})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			names = append(names, d.Name())
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s is %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("ca.crt ca.key n1.crt n1.key n1.kubeconfig sa.key sa.pub"); !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
}

func TestServiceAccountKeys(t *testing.T) {
	keys, err := CreateServiceAccountKeys(t.TempDir(), "sa")
	if err != nil {
		t.Fatal(err)
	}
	// As kube-apiserver and kube-controller-manager read them.
	private, err := keyutil.PrivateKeyFromFile(keys.Private)
	if err != nil {
		t.Fatal(err)
	}
	public, err := keyutil.PublicKeysFromFile(keys.Public)
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := private.(*ecdsa.PrivateKey); !ok || len(public) != 1 || !key.PublicKey.Equal(public[0]) {
		t.Errorf("%T and %d public keys do not match", private, len(public))
	}
}
