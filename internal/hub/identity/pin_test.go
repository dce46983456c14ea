package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

type kubeletAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue returns a certificate of an authority's, or of its own, and its key, as PEM.
func issue(t *testing.T, by *kubeletAuthority, until time.Time) (cert, key []byte, made *kubeletAuthority) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "n1@1700000000"}, NotBefore: now.Add(-time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        by == nil, BasicConstraintsValid: true,
	}
	parent, signer := c, k
	if by != nil {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, k.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	of, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: of}), &kubeletAuthority{c, k}
}

func digestOf(cert []byte) string {
	block, _ := pem.Decode(cert)
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

func put(t *testing.T, path string, content ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(content, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLookForKubelet(t *testing.T) {
	caCert, _, ca := issue(t, nil, now.Add(time.Hour))
	own, ownKey, _ := issue(t, nil, now.Add(time.Hour))
	ended, _, _ := issue(t, nil, now.Add(-time.Minute))
	signed, signedKey, _ := issue(t, ca, now.Add(time.Hour))
	signedEnded, _, _ := issue(t, ca, now.Add(-time.Minute))
	overdue, _, _ := issue(t, ca, now.Add(5*time.Minute)) // of an hour and 5 minutes
	const bootstrap, none = "serverTLSBootstrap: true\n", "-"
	for name, tt := range map[string]struct {
		settings string // none means that there are none, "" that they say nothing
		files    map[string][]byte
		at       string // below the directory
		want     edge.KubeletWay
		file     string
		cert     []byte
		says     string
	}{
		"kubeadm's default": {"", map[string][]byte{nameOwn: append(own, caCert...)}, "", edge.KubeletPinned, nameOwn, own, ""},
		"its own, and has ended": {
			"", map[string][]byte{nameOwn: ended}, "", edge.KubeletPinned, nameOwn, ended, "",
		},
		"left over from before serverTLSBootstrap": {
			bootstrap, map[string][]byte{nameOwn: own}, "", edge.KubeletUnapproved, nameBootstrapped, nil, "nobody has approved",
		},
		"left over from serverTLSBootstrap": {
			"", map[string][]byte{nameOwn: own, nameBootstrapped: signed}, "", edge.KubeletPinned, nameOwn, own, "",
		},
		"signed": {
			bootstrap, map[string][]byte{nameOwn: own, nameBootstrapped: append(signed, signedKey...)}, "", edge.KubeletSigned,
			nameBootstrapped, signed, "",
		},
		"signed, and has ended": {
			bootstrap, map[string][]byte{nameBootstrapped: signedEnded}, "", edge.KubeletEnded, nameBootstrapped, nil,
			"nobody has approved its request for the next",
		},
		"signed, and the next is overdue": {
			bootstrap, map[string][]byte{nameBootstrapped: overdue}, "", edge.KubeletOverdue, nameBootstrapped, overdue,
			"nobody has approved its request for the next",
		},
		"a file that the settings name": {
			"tlsCertFile: tls/own.crt\n" + bootstrap, map[string][]byte{"tls/own.crt": own, nameBootstrapped: signed}, "",
			edge.KubeletPinned, "tls/own.crt", own, "",
		},
		"a file that the settings name, signed by the cluster, and has ended": {
			"tlsCertFile: own.crt\n", map[string][]byte{"own.crt": signedEnded}, "", edge.KubeletSigned, "own.crt",
			signedEnded, "",
		},
		"a file that we are told": {
			bootstrap, map[string][]byte{"told.crt": own}, "told.crt", edge.KubeletPinned, "told.crt", own, "",
		},
		"told that the cluster signs it": {
			none, map[string][]byte{nameBootstrapped: signedEnded}, nameBootstrapped, edge.KubeletEnded,
			nameBootstrapped, nil, "ended",
		},
		"no certificate yet": {"", nil, "", edge.KubeletMissing, nameOwn, nil, "no such file"},
		"no settings":        {none, map[string][]byte{nameOwn: own}, "", edge.KubeletMissing, "", nil, "kubelet's settings"},
		"no directory":       {"", nil, "elsewhere", edge.KubeletMissing, "", nil, "no such file"},
		"settings that are none": {
			"{", map[string][]byte{nameOwn: own}, "", edge.KubeletUnreadable, "", nil, "is no YAML",
		},
		"a key before the certificate": {
			"", map[string][]byte{nameOwn: append(ownKey, own...)}, "", edge.KubeletUnreadable, nameOwn, nil,
			"does not begin with",
		},
		"something else": {"", map[string][]byte{nameOwn: []byte("hello\n")}, "", edge.KubeletUnreadable, nameOwn,
			nil, "no certificate"},
		"half of it": {"", map[string][]byte{nameOwn: own[:200]}, "", edge.KubeletUnreadable, nameOwn, nil,
			"no certificate"},
		"nothing":           {"", map[string][]byte{nameOwn: nil}, "", edge.KubeletUnreadable, nameOwn, nil, "no certificate"},
		"without a newline": {"", map[string][]byte{nameOwn: bytes.TrimSpace(own)}, "", edge.KubeletPinned, nameOwn, own, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range tt.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				put(t, filepath.Join(dir, file), content)
			}
			put(t, filepath.Join(dir, "ca"), caCert)
			if tt.settings != none {
				put(t, filepath.Join(dir, "config.yaml"), []byte(tt.settings))
			}
			metrics := prometheus.NewRegistry()
			f := NewKubeletFinder(KubeletConfig{
				Settings: filepath.Join(dir, "config.yaml"), Certificate: filepath.Join(dir, tt.at),
				Authorities: filepath.Join(dir, "ca"),
				Clock:       ends.Clock{OfDay: func() time.Time { return now }}, Metrics: metrics,
			})
			if said := f.Serving(); said != (edge.KubeletServing{}) {
				t.Errorf("%+v is said before anybody has looked", said)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := f.Run(ctx); err != nil { // looks once
				t.Fatal(err)
			}
			got := f.Found()
			want := edge.KubeletServing{Way: tt.want}
			if tt.cert != nil {
				want.Digest = digestOf(tt.cert)
			}
			file := ""
			if tt.file != "" {
				file = filepath.Join(dir, tt.file)
			}
			if got.KubeletServing != want || got.File != file || !strings.Contains(got.Problem, tt.says) ||
				(got.Problem == "") != (tt.says == "") ||
				got.NotAfter.IsZero() != (tt.cert == nil && tt.want != edge.KubeletEnded) {
				t.Errorf("%+v, want %+v of %s, %q", got, want, file, tt.says)
			}
			if said, ok := edge.ParseKubeletServing(f.Serving().String()); !ok || said != want {
				t.Errorf("the coordinator hears %+v, %t", said, ok)
			}
			text := "# HELP yurthub_kubelet_certificate " + helpOf(t, metrics) + "\n# TYPE yurthub_kubelet_certificate gauge\n" +
				`yurthub_kubelet_certificate{way="` + string(tt.want) + `"} 1` + "\n"
			if err := testutil.GatherAndCompare(metrics, strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func helpOf(t *testing.T, metrics *prometheus.Registry) string {
	t.Helper()
	all, err := metrics.Gather()
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0].GetHelp()
}

// TestAChangeIsFollowed: kubelet has another certificate, or other settings.
func TestAChangeIsFollowed(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "config.yaml")
	one, _, _ := issue(t, nil, now.Add(time.Hour))
	two, key, _ := issue(t, nil, now.Add(time.Hour))
	put(t, settings)
	put(t, filepath.Join(dir, nameOwn), one)
	synctest.Test(t, func(t *testing.T) {
		f := NewKubeletFinder(KubeletConfig{Settings: settings, Certificate: dir})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		is := func(want string) {
			t.Helper()
			time.Sleep(lookEvery + time.Second)
			if got := f.Serving().String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		is("pinned/" + digestOf(one))
		put(t, filepath.Join(dir, nameOwn), two)
		is("pinned/" + digestOf(two))
		put(t, settings, []byte("serverTLSBootstrap: true"))
		is("unapproved")
		put(t, filepath.Join(dir, "dated.pem"), one, key)
		if err := os.Symlink("dated.pem", filepath.Join(dir, nameBootstrapped)); err != nil {
			t.Fatal(err)
		}
		is("pinned/" + digestOf(one)) // no authority that is known here has signed it
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// watched notes how far it was read.
type watched struct {
	*bytes.Reader
	size int64
}

// TestNoKeyIsRead: kubelet keeps the certificate that the cluster signed for it in one file with its key.
func TestNoKeyIsRead(t *testing.T) {
	cert, key, _ := issue(t, nil, now.Add(time.Hour))
	begins := bytes.IndexByte(key, '\n')
	if begins < keyless {
		t.Fatalf("a key begins after %d bytes, and up to %d are read", begins, keyless)
	}
	for _, before := range []string{"", "# kubelet's\n", strings.Repeat("text\n", 7)} {
		file := watched{bytes.NewReader(append([]byte(before), append(cert, key...)...)), int64(len(before) + len(cert))}
		if _, err := first(file); err != nil {
			t.Fatal(err)
		}
		at, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			t.Fatal(err)
		}
		if most := file.size + keyless; at > most || at < file.size {
			t.Errorf("%d bytes were read: the certificate ends at %d, the key begins at %d", at, file.size,
				file.size+int64(begins))
		}
	}
	// Nor is a file read that has no end.
	endless := io.MultiReader(strings.NewReader("-----BEGIN CERTIFICATE-----\n"), neverEnds{})
	if _, err := first(endless); err == nil {
		t.Error("a certificate without an end was found")
	}
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("A"), len(p))), nil }
