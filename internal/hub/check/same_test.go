package check

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
)

// TestTheSameWithTheHubStopped: a finding that does not need a running hub is the same with and without one. A running hub
// reports of its certificates what its files contain (identity's tests check that), or the words of said.
func TestTheSameWithTheHubStopped(t *testing.T) {
	const client, serving = findingClient, "yurthub: serving certificate"
	life := func(from, to time.Duration) func(*world) {
		return func(w *world) { w.writePair("pki/client.pem", ofNode("n1"), from, to) }
	}
	hubs := func(to time.Duration) func(*world) {
		return func(w *world) {
			w.writePair("pki/hub.pem", func(c *x509.Certificate) { c.Subject.CommonName = "openyurt:hub:n1" }, -time.Hour*100, to)
			content := must(os.ReadFile(filepath.Join(w.cfg.CertDir, "hub.pem")))
			certificate, key, _ := bytes.Cut(content, []byte("-----BEGIN EC"))
			w.file("pki/hub.pem", bytes.Join([][]byte{certificate, w.ca.pem(), []byte("-----BEGIN EC"), key}, nil))
		}
	}
	own := func(remove ...string) func(*world) { // the hub has the authority itself
		return func(w *world) {
			w.file("pki/ca.crt", w.ca.pem())
			w.cfg.CAFile = ""
			for _, name := range remove {
				if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	token := func(w *world) { w.file("token", []byte("abcdef.0123456789abcdef")) }
	both := func(all ...func(*world)) func(*world) {
		return func(w *world) {
			for _, each := range all {
				each(w)
			}
		}
	}
	cloudSays := func(path, answer string, more ...string) func(*world) {
		return func(w *world) {
			w.serve = func(rw http.ResponseWriter, r *http.Request) {
				for i := 0; i < len(more); i += 2 {
					rw.Header().Set(more[i], more[i+1])
				}
				if r.URL.Path == path {
					fmt.Fprint(rw, answer)
					return
				}
				apiServer(rw, r)
			}
		}
	}
	const day, at = 24 * time.Hour, "/api/v1/nodes/n1"
	for _, tt := range []struct {
		name  string
		world func(*world)
		facts func(*Facts)    // changes what this machine, which has no kubelet, can't show
		said  *identity.State // what a running hub says of its client certificate
		level Level
		what  string
		say   string // in why or do
	}{
		{"settings", func(w *world) { w.cfg.MasterService = true }, nil, nil, Fail, "settings", "--masterservice"},
		{"settings of certificates", func(w *world) { w.cfg.Identity.CACertHashes = []string{"x"} }, nil, nil, Fail, "settings",
			"CA hash"},

		{"certificate", life(-day, 90*day), nil, nil, OK, client, "good until"},
		{"certificate ends soon", life(-90*day, day), nil, nil, Warn, client, "expires in"},
		{"certificate ended", both(token, life(-90*day, -day)), nil,
			&identity.State{Problem: "it expired at T: no answer", NotAfter: time.Now().Add(-day)}, Fail, client, "expired at"},
		{"certificate ended, no token", life(-90*day, -day), nil,
			&identity.State{Problem: "it expired at T: there is no bootstrap token", NotAfter: time.Now().Add(-day)},
			Fail, client, "there is no bootstrap token"},
		{"certificate not yet begun", life(day, 90*day), nil, nil, Fail, client, "set the clock"},
		{"certificate of another", func(w *world) { w.writePair("pki/client.pem", ofNode("n2"), -day, day) }, nil, nil,
			Fail, client, `for "system:node:n2"`},
		{"no node's certificate", func(w *world) { w.writePair("pki/client.pem", nil, -day, day) }, nil, nil,
			Fail, client, `for "server"`},
		{"no certificate in it", func(w *world) { w.file("pki/client.pem", []byte("x")) }, nil, nil, Fail, client, "client.pem"},
		{"no certificate, a token", both(token, own("pki/client.pem")), nil, nil, Fail, client, "asks for one"},
		{"no certificate, nothing", own("pki/client.pem"), nil, &identity.State{Problem: "there is no bootstrap token in F"},
			Fail, client, "kubeadm token create"},
		{"key for all", func(w *world) { w.mode("pki/client.pem", 0o644) }, nil, nil, Fail, client, "chmod 0600"},
		{"key for a group", func(w *world) { w.mode("pki/client.pem", 0o640) }, nil, nil, Warn, client, "lets a group read"},
		{"key a group can write", func(w *world) { w.mode("pki/client.pem", 0o620) }, nil, nil, Fail, client, "chmod 0600"},
		{"given certificate", func(w *world) {
			w.cfg.CertFile, w.cfg.KeyFile = w.cfg.CertDir+"/client.pem", w.cfg.CertDir+"/client.pem"
		}, nil, nil, OK, client, "good until"},
		{"given certificate missing", func(w *world) { w.cfg.CertFile, w.cfg.KeyFile = "/none", "/none" }, nil, nil,
			Fail, client, "no such file"},
		{"serving certificate", hubs(90 * day), nil, nil, OK, serving, "good until"},
		{"serving certificate ended", hubs(-day), nil, nil, Warn, serving, "expired at"},

		{"authority", own(), nil, nil, OK, "authority", "ca.crt is good until"},
		{"authority given", func(*world) {}, nil, nil, OK, "authority", "ca.crt is good until"},
		{"authority expired", func(w *world) {
			w.ca = authorityUntil(t, time.Now().Add(-day))
			own()(w)
		}, nil, nil, Fail, "authority", "expired at"},
		{"authority missing", func(w *world) { w.cfg.CAFile = "/none" }, nil, nil, Fail, "authority", "no such file"},
		{"authority unknown", both(own("pki/ca.crt"), token), nil, nil, Fail, "authority", "no CA hash"},
		{"authority to be discovered", both(own("pki/ca.crt"), token, func(w *world) {
			w.cfg.Identity.CACertHashes = []string{"sha256:" + strings.Repeat("0a", 32)}
		}), nil, nil, OK, "authority", "discovers"},

		{"clock", func(*world) {}, nil, nil, OK, "clock", "agrees"},
		{"clock behind", cloudSays("", "", "Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)), nil, nil,
			Fail, "clock", "behind that of the cloud"},
		{"clock of 1970", func(*world) {}, func(f *Facts) { f.Now = time.Unix(500, 0) }, nil, Fail, "clock", "battery"},
		{"cloud", func(*world) {}, nil, nil, OK, "cloud", "is reached"},
		{"cloud of another authority", func(w *world) { w.file("ca.crt", newAuthority(t).pem()) }, nil, nil, Fail, "cloud",
			"is not signed by"},
		{"Node", func(*world) {}, nil, nil, OK, "node", "is Ready, in the pool p1"},
		{"Node of another pool", func(w *world) { w.cfg.Pool = "p2" }, nil, nil, Fail, "node", "belongs to the pool p1"},
		{"Node not Ready", cloudSays(at, `{"metadata":{"labels":{"apps.openyurt.io/nodepool":"p1"}}}`), nil, nil,
			Warn, "node", "is not Ready"},
		{"disk", func(*world) {}, nil, nil, OK, "--disk-cache-path", "can be used"},
		{"disk of no use", func(w *world) { w.file("cache", nil) }, nil, nil, Fail, "--disk-cache-path", "is not a directory"},
		{"certificates' disk", func(*world) {}, nil, nil, OK, "--cert-dir", "can be used"},
		{"kubelet", func(*world) {}, func(f *Facts) {
			f.Kubelet = Kubelet{Running: true, Config: "/k", Server: f.Settings.hubURL()}
		}, nil, OK, "kubelet", "goes through yurthub"},
		{"kubelet past the hub", func(*world) {}, func(f *Facts) {
			f.Kubelet = Kubelet{Running: true, Config: "/k", Server: "https://cloud"}
		}, nil, Warn, "kubelet", "not through yurthub"},
		{"no kubelet", func(*world) {}, nil, nil, Warn, "kubelet", "no kubelet runs"},
		{"a disk that hangs", func(*world) {}, func(f *Facts) { f.Unanswered = []string{"--cert-dir"} }, nil, Fail, "--cert-dir",
			"too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			crt, key := w.ca.issue(t, nil)
			tt.world(w)
			w.cfg.ServerAddresses = []string{w.cloud(w.serve, crt, key)}
			findings := map[bool]Finding{}
			for _, running := range []bool{false, true} {
				if running {
					w.hub(tt.said)
				}
				f := gather(t.Context(), w.cfg, probesOf(w.cfg))
				if f.Root = true; f.Hub.answers() != running {
					t.Fatalf("hub: %+v", f.Hub)
				}
				if tt.facts != nil {
					tt.facts(&f)
				}
				all := Judge(f)
				for _, found := range all {
					if found.What == tt.what && found.Level == tt.level && strings.Contains(found.Why+" "+found.Do, tt.say) {
						findings[running] = found
					}
				}
				if findings[running].What == "" {
					t.Errorf("hub running %t: no finding %s %s with %q in:\n%s", running, tt.level, tt.what, tt.say,
						table(t, all))
				}
			}
			if tt.said == nil && findings[true].Do != findings[false].Do {
				t.Errorf("to do is %q with the hub and %q without", findings[true].Do, findings[false].Do)
			}
		})
	}
}

// writePair writes a certificate of this life, from now on, with its key.
func (w *world) writePair(name string, change func(*x509.Certificate), from, to time.Duration) {
	w.t.Helper()
	crt, key := w.ca.issue(w.t, func(c *x509.Certificate) {
		if change != nil {
			change(c)
		}
		c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
	})
	w.file(name, append(crt, key...))
}

func (w *world) mode(name string, mode os.FileMode) {
	w.t.Helper()
	if err := os.Chmod(filepath.Join(w.dir, name), mode); err != nil {
		w.t.Fatal(err)
	}
}

// hub runs one. It says of its certificates what its files say, or of its own what is given.
func (w *world) hub(client *identity.State) {
	w.t.Helper()
	said := front.HubStatus{Node: w.cfg.Node, Pool: w.cfg.Pool, Cloud: "up", Coordinator: "none"}
	if held, err := identity.Look(w.cfg.Certificates()); err == nil && w.cfg.OwnCertificate() {
		said.Identity = &held.Status
		if client != nil {
			said.Identity.Client = *client
		}
		if w.cfg.CAFile != "" {
			said.Identity.Authorities = nil // as a hub that is given them says
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/status" {
			_ = json.NewEncoder(rw).Encode(said)
		}
	}))
	w.t.Cleanup(s.Close)
	w.cfg.HealthPort = port(w.t, s.Listener)
}
