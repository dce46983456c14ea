package identity

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLookSaysWhatARunningHubSays: of its certificate and of the cloud's authorities.
func TestLookSaysWhatARunningHubSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, newAuthority(t, "kubernetes"))
		n := newNode(t, c, nil)
		before, err := Look(n.cfg)
		if err != nil || before.Client != (State{}) || before.Pair != nil || before.Roots != nil ||
			before.Authorities.Problem != "" || len(before.Authorities.Trusted) > 0 {
			t.Errorf("of a node with a token: %+v, %v", before, err)
		}
		if err := n.Ensure(n.ctx); err != nil {
			t.Fatal(err)
		}
		after, err := Look(n.cfg)
		if said := n.Report(); err != nil || !reflect.DeepEqual(&after.Status, said) {
			t.Errorf("%+v, %v; the running hub says %+v", after.Status, err, said)
		}
		if !after.Pair.Leaf.Equal(n.leaf()) || !after.Roots.Equal(pool(c.ca)) || !strings.HasSuffix(after.RootsFrom, "ca.crt") {
			t.Errorf("%+v", after)
		}
	})
}

// TestLook: what is wrong with files, in words of one line that hold no secret.
func TestLook(t *testing.T) {
	ca := newAuthority(t, "kubernetes")
	ours := nodeCert(time.Now().Add(-time.Hour), time.Now().Add(year))
	ended := nodeCert(time.Now().Add(-year), time.Now().Add(-time.Hour))
	others := nodeCert(time.Now(), time.Now().Add(year))
	others.Subject.CommonName = "system:node:n2"
	server := nodeCert(time.Now(), time.Now().Add(year))
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	pair := func(of *x509.Certificate) string { return string(ca.pair(t, of)) }
	cut := func(text string) string { certificate, _, _ := strings.Cut(text, "-----BEGIN EC"); return certificate }
	_, key, _ := strings.Cut(pair(ours), "END CERTIFICATE-----\n")

	const none = "there is no bootstrap token"
	for name, tt := range map[string]struct {
		own, token, kubelets string // content of files; "" means that they are missing
		noHash               bool
		client, authority    string // part of what is wrong; "" means nothing
		proof                string // part of where Pair is from
	}{
		"own":                      {pair(ours), token, "", false, "", "", "present"},
		"own ended, a token":       {pair(ended), token, "", false, "", "", "present"},
		"own ended, nothing":       {pair(ended), "", "", false, "present certificate expired at", none, "present"},
		"own another's":            {pair(others), token, "", false, `is for "system:node:n2"`, "", ""},
		"own a server's":           {pair(server), token, "", false, "not for the use", "", ""},
		"own with another's key":   {cut(pair(ours)) + key, token, "", false, "certificate and key in", "", ""},
		"own no certificate":       {"x", token, "", false, "certificate and key in", "", ""},
		"kubelet's":                {"", "", pair(ours), false, "", none, "kubelet's"},
		"kubelet's ended":          {"", "", pair(ended), false, "kubelet's certificate in", none, "kubelet's"},
		"kubelet's ended, a token": {"", token, pair(ended), false, "", "", "kubelet's"},
		"kubelet's another's":      {"", "", pair(others), false, `is for "system:node:n2"`, `is for "system:node:n2"`, ""},
		"no token":                 {"", "abcdef", "", false, "neither a bootstrap token", "neither a bootstrap token", ""},
		"no hash":                  {"", token, "", true, "", "no CA hash is given", ""},
		"nothing":                  {"", "", "", false, "kubeadm token create", none, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{Node: "n1", Dir: filepath.Join(dir, "pki"), BootstrapFile: filepath.Join(dir, "token"),
				KubeletKubeconfig: filepath.Join(dir, "kubelet"), CACertHashes: []string{ca.hash()}}
			if tt.noHash {
				cfg.CACertHashes = nil
			}
			if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{
				filepath.Join(cfg.Dir, "client.pem"): tt.own, cfg.BootstrapFile: tt.token, cfg.KubeletKubeconfig: tt.kubelets,
			} {
				if content != "" {
					write(t, path, content)
				}
			}
			h, err := Look(cfg)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "client", h.Client.Problem, tt.client)
			expect(t, "authorities", h.Authorities.Problem, tt.authority)
			expect(t, "proof", h.PairFrom, tt.proof)
			if (h.Pair != nil) != (tt.proof != "") {
				t.Errorf("pair %v", h.Pair != nil)
			}
		})
	}
	dir := t.TempDir()
	cfg := Config{Node: "n1", Dir: filepath.Join(dir, "pki"), KubeletKubeconfig: filepath.Join(dir, "kubelet.conf")}
	write(t, filepath.Join(dir, "ca.crt"), string(ca.pem))
	write(t, filepath.Join(dir, "kubelet.pem"), pair(ours))
	write(t, cfg.KubeletKubeconfig, `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://cloud:6443", certificate-authority: ca.crt}}],
users: [{name: a, user: {client-certificate: kubelet.pem, client-key: kubelet.pem}}]}`)
	if h, err := Look(cfg); err != nil || !h.Roots.Equal(pool(ca)) || h.RootsFrom != cfg.KubeletKubeconfig || h.Pair == nil {
		t.Errorf("of kubelet's kubeconfig: %+v, %v", h, err)
	}
	if _, err := Look(Config{Dir: "relative"}); err == nil {
		t.Error("a relative directory is no error")
	}
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if (got == "") != (want == "") || !strings.Contains(got, want) || strings.ContainsAny(got, "\n") ||
		strings.Contains(got, tokenSecret) || strings.Contains(got, "PRIVATE KEY") {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestLookAtGiven: the same of files that somebody else keeps.
func TestLookAtGiven(t *testing.T) {
	ca, dir := newAuthority(t, "kubernetes"), t.TempDir()
	good := nodeCert(time.Now().Add(-time.Hour), time.Now().Add(year))
	others := nodeCert(time.Now(), time.Now().Add(year))
	others.Subject.CommonName = "system:node:n2"
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		write(t, path, string(content))
		return path
	}
	roots, ours, theirs := file("ca", ca.pem), file("ours", ca.pair(t, good)), file("theirs", ca.pair(t, others))
	none := filepath.Join(dir, "none")
	for name, tt := range map[string]struct {
		Given
		client, authority string
	}{
		"good":            {Given{roots, ours, ours}, "", ""},
		"another's":       {Given{roots, theirs, theirs}, `is for "system:node:n2"`, ""},
		"key of another":  {Given{roots, ours, theirs}, "private key", ""},
		"no certificate":  {Given{roots, none, ours}, "no such file", ""},
		"no key":          {Given{roots, ours, none}, "no such file", ""},
		"no authority":    {Given{none, ours, ours}, "", "no such file"},
		"empty authority": {Given{file("empty", nil), ours, ours}, "", "no certificate of an authority"},
	} {
		h := tt.Look("n1")
		expect(t, name+": client", h.Client.Problem, tt.client)
		expect(t, name+": authorities", h.Authorities.Problem, tt.authority)
		if (h.Pair == nil) != (tt.client != "") || (h.Roots == nil) != (tt.authority != "") {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if h := (Given{roots, ours, ours}).Look("n1"); !h.Client.NotAfter.Equal(good.NotAfter.Truncate(time.Second)) {
		t.Errorf("%+v", h.Client)
	}
}
