package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/logs/logstest"
	"yurtcoordinator/internal/pool/pooltest"
)

// hidden is the value of a Secret.
const hidden = "hidden-in-a-Secret"

// site is what a coordinator is started with.
type site struct {
	t    *testing.T
	ca   *pooltest.Authority
	dir  string
	args []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, ca: pooltest.NewAuthority(t, "pool-ca"), dir: t.TempDir()}
	serving := s.ca.Issue(t, pooltest.Operator(), pooltest.Tomorrow())
	data, err := os.MkdirTemp("", "co-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	s.args = []string{
		"--bind-address=127.0.0.1", "--secure-port=0", "--probe-port=0", "--data-dir=" + data, "--own-secrets",
		"--tls-cert-file=" + pooltest.WriteFile(t, s.dir, "serving.crt", serving.Cert),
		"--tls-private-key-file=" + pooltest.WriteFile(t, s.dir, "serving.key", serving.Key),
		"--client-ca-file=" + pooltest.WriteFile(t, s.dir, "ca.crt", s.ca.Pem),
	}
	return s
}

// ready waits until the coordinator is, and returns its address.
func ready(t *testing.T, p *logstest.Program) (address string) {
	t.Helper()
	line := p.Until("that it is ready", func(line string) bool { return strings.Contains(line, `"msg":"Ready"`) })
	address, _ = logstest.Entries(t, line)[0]["address"].(string)
	return address
}

// use has a node push a Pod and the Secret that it uses, an operator read it, and somebody be refused.
func (s *site) use(address string) {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{s.ca.Issue(s.t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(s.t)},
		MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	hub := &pooltest.Hub{
		T: s.t, Client: &http.Client{Transport: transport, Timeout: time.Minute}, Base: "https://" + address, Node: "n1",
	}
	hub.Ask()
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(pooltest.PodOf(s.t, "n1", "a", 10).Raw); err != nil {
		s.t.Fatal(err)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "key"},
	}}}
	hub.Must(pooltest.KindPod, pooltest.Put(pooltest.AsObject(s.t, pod)))
	secret := &corev1.Secret{ObjectMeta: pooltest.CloudMeta("key", 8), Data: map[string][]byte{"k": []byte(hidden)}}
	hub.Must(corev1.SchemeGroupVersion.WithKind("Secret"), pooltest.Put(pooltest.AsObject(s.t, secret)))

	shown := s.ca.Issue(s.t, pooltest.Operator(), pooltest.Tomorrow())
	operator, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + address, Timeout: time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.Pem, CertData: shown.Cert, KeyData: shown.Key},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := operator.CoreV1().Secrets("shop").Get(s.t.Context(), "key", metav1.GetOptions{})
	if err != nil || string(got.Data["k"]) != hidden {
		s.t.Errorf("an operator reads %v, %v", got, err)
	}
	if err := operator.CoreV1().Secrets("shop").Delete(s.t.Context(), "key", metav1.DeleteOptions{}); err == nil {
		s.t.Error("an operator deletes a Secret")
	}
}

// TestOneFormAndNoSecret: kube-apiserver, etcd and the coordinator log in one form, all that there is, to stderr; the audit log
// is alone on stdout; and neither has a Secret.
func TestOneFormAndNoSecret(t *testing.T) {
	s := newSite(t)
	p := logstest.Start(t, append(s.args, "--logging-format=json", "-v=9")...)
	s.use(ready(t, p))
	if err := p.Stop(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	all := logstest.Entries(t, p.Log())
	if highest := logstest.Highest(all); highest < 6 || highest > 7 {
		t.Errorf("the highest level is %d", highest)
	}
	for _, of := range []struct {
		what string
		is   func(logstest.Entry) bool
	}{
		{"etcd", func(e logstest.Entry) bool { return e["logger"] == "etcd" || e["logger"] == "pool.etcd" }},
		{"kube-apiserver", func(e logstest.Entry) bool { return e.Message() == "HTTP" }},
		{"the coordinator", func(e logstest.Entry) bool { return e["logger"] == "pool" }},
	} {
		if !slices.ContainsFunc(all, of.is) {
			t.Errorf("nothing is of %s:\n%s", of.what, p.Log())
		}
	}
	refused := 0
	for line := range strings.Lines(p.Out()) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" {
			t.Errorf("%v in a line of stdout: %s", err, line)
		} else if e.ResponseStatus.Code == http.StatusForbidden && e.Verb == "delete" && e.User.Username == "alice" {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("the refusal has %d lines in the audit log:\n%s", refused, p.Out())
	}
	for line := range strings.SplitSeq(p.Log()+p.Out(), "\n") {
		if strings.Contains(line, hidden) || strings.Contains(line, base64.StdEncoding.EncodeToString([]byte(hidden))) {
			t.Errorf("a Secret is in the log: %s", line)
		}
	}
}

// TestKubernetesIsQuiet unless asked: at level 0 only what the coordinator itself has to say is logged, and errors.
func TestKubernetesIsQuiet(t *testing.T) {
	s := newSite(t)
	p := logstest.Start(t, append(s.args, "--logging-format=json")...)
	s.use(ready(t, p))
	if err := p.Stop(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	for _, e := range logstest.Entries(t, p.Log()) {
		if name := fmt.Sprint(e["logger"]); e.Level() != 0 || !strings.HasPrefix(name, "pool") {
			t.Errorf("it logs %v", e)
		}
	}
}

func TestWhatIsWrongIsToldInJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--logging-format=json"}, "--tls-cert-file is required"},
		{[]string{"--bogus", "--logging-format=json"}, "--bogus"},
		{[]string{"--logging-format=json", "--config=" + filepath.Join(t.TempDir(), "none")}, "no such file"},
	} {
		log := logstest.Ends(t, tt.args...)
		if all := logstest.Entries(t, log); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0]["err"]), tt.want) {
			t.Errorf("%v: %s", tt.args, log)
		}
	}
	if log := logstest.Ends(t, "--logging-format=xml"); log != "yurt-coordinator: --logging-format \"xml\": want text or json" {
		t.Errorf("a form that is none: %s", log)
	}
}
