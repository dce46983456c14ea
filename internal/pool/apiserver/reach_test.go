package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
)

const loopback = "127.0.0.1"

// issued is a certificate and what signs for it.
type issued struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate; by nil means that it signs itself.
func issue(t *testing.T, by *issued, change func(*x509.Certificate)) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "a kubelet"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(loopback)}, BasicConstraintsValid: true,
	}
	change(template)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{cert, key}
}

func (i *issued) digest() string { return digest(i.cert.Raw) }

// serve has a server show the certificate, and returns its address.
func (i *issued) serve(t *testing.T) *url.URL {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "well")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func same(*x509.Certificate) {}

// pins are what nodes have said of their kubelets.
type pins map[string]string

func (p pins) of(_ context.Context, node string) (string, error) {
	if node == "unasked" {
		return "", errors.New("etcd is away")
	}
	return p[node], nil
}

func authorityFile(t *testing.T, ca *issued) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHowAKubeletIsKnown(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, func(c *x509.Certificate) { c.IsCA = true })
	authority := authorityFile(t, ca)
	own, other := issue(t, nil, same), issue(t, nil, same)
	ended := issue(t, nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	named := issue(t, nil, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"elsewhere"} })
	ofNode := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = userOfNode + name }
	}
	signed, signedN2 := issue(t, ca, ofNode("n1")), issue(t, ca, ofNode("n2"))
	signedFor := issue(t, ca, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("192.0.2.1")} })
	for name, tt := range map[string]struct {
		serves *issued
		pin    string
		alone  bool // without an authority
		want   string
	}{
		"pinned":                           {own, own.digest(), false, ""},
		"pinned, without an authority":     {own, own.digest(), true, ""},
		"pinned, and has ended":            {ended, ended.digest(), false, ""},
		"pinned, with other names":         {named, named.digest(), false, ""},
		"signed":                           {signed, "", false, ""},
		"signed, another is pinned":        {signed, own.digest(), false, ""},
		"signed for another node":          {signedN2, "", false, `it has signed for "system:node:n2"`},
		"signed for another, and pinned":   {signedN2, signedN2.digest(), false, "is that of node"},
		"signed for another address":       {signedFor, "", false, "and the node's hub has reported none"},
		"signed for another, but pinned":   {signedFor, signedFor.digest(), false, ""},
		"signed, by no authority of ours":  {signed, "", true, "no --kubelet-certificate-authority"},
		"nothing is pinned":                {own, "", false, "and the node's hub has reported none"},
		"nothing is pinned, or has to be":  {own, "", true, "and the node's hub has reported none"},
		"another is pinned":                {other, own.digest(), false, "not the one that the node's hub has reported"},
		"another is pinned, no authority":  {other, own.digest(), true, "not the one that the node's hub has reported"},
		"has ended, and another is pinned": {ended, own.digest(), false, "not the one that the node's hub has reported"},
		"what is pinned signs for what is served": {issue(t, ca, func(c *x509.Certificate) { c.IPAddresses = nil }),
			ca.digest(), false,
			"not the one that the node's hub has reported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := tt.serves.serve(t)
			var refused atomic.Int32
			k := Kubelets{Anywhere: true, Pinned: pins{"n1": tt.pin}.of, CAFile: authority}
			k.Refused = func(node string, why error) {
				if node == "n1" && strings.Contains(why.Error(), tt.want) {
					refused.Add(1)
				}
			}
			if tt.alone {
				k.CAFile = ""
			}
			transport, err := NewReach(k).To(t.Context(), "n1", at.Hostname())
			if err != nil {
				t.Fatal(err)
			}
			// As logs and figures are read.
			response, err := (&http.Client{Transport: transport}).Get(at.String())
			if err == nil {
				_ = response.Body.Close()
			}
			// As commands and forwarded ports are opened.
			conn, dialed := utilproxy.DialURL(t.Context(), at, transport)
			if dialed == nil {
				_ = conn.Close()
			}
			for _, err := range []error{err, dialed} {
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			}
			if tt.want != "" && refused.Load() != 2 {
				t.Errorf("told of %d refusals, want 2", refused.Load())
			}
		})
	}
}

// TestANodeThatNamesAnothersKubelet: N reports the address and the certificate of B's kubelet, both of which it can see. It gets
// nothing, and B's kubelet is called as before.
func TestANodeThatNamesAnothersKubelet(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, func(c *x509.Certificate) { c.IsCA = true })
	authority := authorityFile(t, ca)
	named := func(common string, dns ...string) *issued {
		return issue(t, nil, func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames = common, dns })
	}
	signed := issue(t, ca, func(c *x509.Certificate) { c.Subject.CommonName = userOfNode + "b" })
	const bHas, nHas, isOfB = "the hub of node b has", "the hub of node n has", "is that of node"
	for name, tt := range map[string]struct {
		serves *issued
		said   bool // B's hub has reported it
		b, n   string
	}{
		"as kubelet signs for itself":              {named("b@1700000000", "B"), true, "", bHas},
		"..., before B's hub has reported":         {named("b@1700000000", "b"), false, "has reported none", isOfB},
		"signed by the cluster":                    {signed, true, "", isOfB},
		"..., before B's hub has reported it":      {signed, false, "", isOfB},
		"without a name: nobody knows whose":       {named("kubelet"), true, nHas, bHas},
		"with both names: nobody knows whose":      {named("kubelet", "b", "n"), true, nHas, bHas},
		"of a name that is no node's of this pool": {named("elsewhere@1"), true, nHas, bHas},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := tt.serves.serve(t)
			said := pins{"n": tt.serves.digest()}
			if tt.said {
				said["b"] = tt.serves.digest()
			}
			r := NewReach(Kubelets{
				Anywhere: true, Pinned: said.of, CAFile: authority,
				Reporters: func(digest string) (all []string) {
					for node, pin := range said {
						if pin == digest {
							all = append(all, node)
						}
					}
					return all
				},
				Member: func(name string) bool { return name == "b" || name == "n" },
			})
			for node, want := range map[string]string{"b": tt.b, "n": tt.n} {
				transport, err := r.To(t.Context(), node, at.Hostname())
				if err != nil {
					t.Fatal(err)
				}
				response, err := (&http.Client{Transport: transport}).Get(at.String())
				if err == nil {
					_ = response.Body.Close()
				}
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", node, err, want)
				}
			}
		})
	}
}

// TestWhatOthersReportCountsAtOnce: a connection that was verified before another node has reported the same certificate is not
// used any more.
func TestWhatOthersReportCountsAtOnce(t *testing.T) {
	own := issue(t, nil, same)
	at := own.serve(t)
	reporters := []string{"n1"}
	r := NewReach(Kubelets{
		Anywhere: true, Pinned: pins{"n1": own.digest()}.of, Reporters: func(string) []string { return slices.Clone(reporters) },
	})
	get := func() error {
		transport, err := r.To(t.Context(), "n1", at.Hostname())
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Get(at.String())
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	reporters = append(reporters, "n2")
	if err := get(); err == nil || !strings.Contains(err.Error(), "the hub of node n2 has reported the same") {
		t.Errorf("after n2 has reported it, too: %v", err)
	}
}

// TestARefusalIsBounded: a stranger's certificate may have many names.
func TestARefusalIsBounded(t *testing.T) {
	ca := issue(t, nil, func(c *x509.Certificate) { c.IsCA = true })
	stranger := issue(t, ca, func(c *x509.Certificate) {
		c.IPAddresses = nil
		for i := range 90 {
			c.IPAddresses = append(c.IPAddresses, net.IPv4(10, 0, 0, byte(i)))
		}
	})
	err := Kubelets{CAFile: authorityFile(t, ca)}.verify("n1", terms{host: loopback}, []*x509.Certificate{stranger.cert})
	if err == nil || len(err.Error()) > 600 || !strings.Contains(err.Error(), "10.0.0.0") {
		t.Errorf("%d bytes: %.700s", len(err.Error()), err)
	}
}

// TestAConnectionIsOfOneNode: what was verified for one node is not used for another that names the same address.
func TestAConnectionIsOfOneNode(t *testing.T) {
	own := issue(t, nil, same)
	at := own.serve(t)
	said := pins{"n1": own.digest(), "liar": issue(t, nil, same).digest()}
	r := NewReach(Kubelets{Anywhere: true, Pinned: said.of})
	get := func(node string) error {
		transport, err := r.To(t.Context(), node, at.Hostname())
		if err != nil {
			return err
		}
		response, err := (&http.Client{Transport: transport}).Get(at.String())
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return err
	}
	if err := get("n1"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"liar", "silent"} {
		if err := get(node); err == nil || !strings.Contains(err.Error(), "of node "+node) {
			t.Errorf("%s, after n1: %v", node, err)
		}
	}
	if err := get("unasked"); err == nil || !strings.Contains(err.Error(), "etcd is away") {
		t.Errorf("without its pin: %v", err)
	}
	// A connection that was verified by a former word is not used either.
	said["n1"] = said["liar"]
	if err := get("n1"); err == nil {
		t.Error("n1 is reached by what its hub said before")
	}
	for i := range maxWays {
		if _, err := r.To(t.Context(), "node-"+string(rune('a'+i%26))+time.Duration(i).String(), loopback); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.ways) > maxWays {
		t.Errorf("%d transports are kept", len(r.ways))
	}
}

// TestTheCertificateThatIsShownIsTheNewest: a key that was withdrawn is not shown over a connection that was opened before.
func TestTheCertificateThatIsShownIsTheNewest(t *testing.T) {
	dir := t.TempDir()
	k := Kubelets{Pinned: pins{}.of, CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	r := NewReach(k)
	if _, err := r.To(t.Context(), "n1", loopback); err == nil || !strings.Contains(err.Error(), "towards kubelets") {
		t.Errorf("without the files: %v", err)
	}
	put := func() {
		c := issue(t, nil, same)
		key, err := x509.MarshalECPrivateKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		for path, block := range map[string]*pem.Block{
			k.CertFile: {Type: "CERTIFICATE", Bytes: c.cert.Raw}, k.KeyFile: {Type: "EC PRIVATE KEY", Bytes: key},
		} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	first, err := r.To(t.Context(), "n1", loopback)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.To(t.Context(), "n1", loopback); err != nil || again != first {
		t.Errorf("connections are not kept: %v", err)
	}
	put()
	if next, err := r.To(t.Context(), "n1", loopback); err != nil || next == first {
		t.Errorf("the former certificate is still shown: %v", err)
	}
}

// known finds every kubelet at one place.
type known struct{ kubeletclient.ConnectionInfo }

func (k known) GetConnectionInfo(context.Context, types.NodeName) (*kubeletclient.ConnectionInfo, error) {
	return &k.ConnectionInfo, nil
}

// TestNobodyCanHaveVerificationLeftOut: kubectl logs --insecure-skip-tls-verify-backend gets the transport that verifies, and
// a handler that does not go through Reach gets nowhere.
func TestNobodyCanHaveVerificationLeftOut(t *testing.T) {
	k := Kubelets{Anywhere: true, Pinned: pins{}.of}
	where := known{kubeletclient.ConnectionInfo{Scheme: "https", Hostname: loopback, Port: "10250"}}
	info, err := connections{where, NewReach(k)}.GetConnectionInfo(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if info.InsecureSkipTLSVerifyTransport != info.Transport || info.Hostname != loopback || info.Port != "10250" {
		t.Errorf("%+v", info)
	}
	config := k.client()
	stock, err := kubeletclient.MakeTransport(&config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: stock}).Get(issue(t, nil, same).serve(t).String())
	if err == nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, errUnverified) {
		t.Errorf("a stock transport: %v", err)
	}
}

// TestAKubeletElsewhereOnTheLAN is called, and verified, at the address that its Node says besides its status.
func TestAKubeletElsewhereOnTheLAN(t *testing.T) {
	at, failed := "192.168.7.11", error(nil)
	k := Kubelets{Pinned: pins{}.of, At: func(context.Context, string) (string, error) { return at, failed }}
	where := connections{known{kubeletclient.ConnectionInfo{Scheme: "https", Hostname: "10.0.0.7", Port: "10250"}}, NewReach(k)}
	info, err := where.GetConnectionInfo(t.Context(), "n1")
	if err != nil || info.Hostname != at || where.reach.ways["n1"].by.host != at {
		t.Errorf("%+v, %v", info, err)
	}
	at = ""
	info, err = where.GetConnectionInfo(t.Context(), "n1")
	if err != nil || info.Hostname != "10.0.0.7" || where.reach.ways["n1"].by.host != "10.0.0.7" {
		t.Errorf("%+v, %v: it says none any more", info, err)
	}
	failed = errors.New("no such Node")
	if _, err := where.GetConnectionInfo(t.Context(), "n1"); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}
