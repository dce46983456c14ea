package thief

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var machineScenarios = []kit.Scenario{{
	Name: "stolen-machine", Lab: kit.RealKubelets(kit.Joining(kit.OnePool, 0)), Run: stolenMachine,
	Doc: "Somebody has a node's whole disk: he shows kubelet's token at other hubs, the coordinator and the cloud, poses " +
		"as each of them with the hub's keys, and starts the hub from its cache. He is refused and noticed. The cache " +
		"with its key holds that node's Secrets and nobody else's; without the key, none.",
}}

// neighboursSecret is a Secret that no Pod on the stolen machine has.
const neighboursSecret = "neighbours"

func stolenMachine(t *kit.T) {
	victim := t.Pool.SettledAway()
	stolen := t.Pool.Follower(victim)
	_, err := t.Cloud.CoreV1().Secrets(kit.Namespace).Create(t.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: neighboursSecret}, StringData: map[string]string{"key": "of-a-neighbour"},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Node(stolen).DeployNeedy()
	cloud, err := t.Lab.CloudConfigFrom(stolen)
	t.Must(err)
	atCloud := strings.TrimSuffix(cloud.Host, "/")
	atCoordinator := "https://" + net.JoinHostPort(t.Node(t.Pool.CoordinatorNode()).Address(), strconv.Itoa(edge.PortCoordinator))
	podsPort := func(node string) string {
		return "https://" + net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS))
	}
	serving := filepath.Join(t.Node(stolen).HubKeys(), "hub.pem")
	t.Eventually(60*time.Second, "the hub has a serving certificate", func() error {
		_, err := os.Stat(serving)
		return err
	})

	t.Say("kubelet's token of %s", stolen)
	token, err := os.ReadFile(filepath.Join(t.Node(stolen).HubKeys(), "kubelet.token"))
	t.Must(err)
	before := t.Node(victim).Metric(refusedRequests)
	const nodes = "/api/v1/nodes"
	for _, a := range []struct{ machine, url string }{
		{stolen, podsPort(victim) + nodes}, {stolen, podsPort(stolen) + nodes}, {victim, "https://" + hubsPort + nodes},
		{victim, "https://" + hubsPort + "/api/v1/namespaces/" + kit.Namespace + "/secrets/" + neighboursSecret},
		{stolen, atCoordinator + nodes}, {stolen, atCloud + nodes},
	} {
		code, text := showing(t, string(token), a.machine, a.url)
		if code != http.StatusUnauthorized && (code != 0 || !kit.ShutOut(text)) {
			t.Fail("%s from %s with kubelet's token of %s: %d %s", a.url, a.machine, stolen, code, text)
		}
		t.Say("refused: %s from %s: %d %.80s", a.url, a.machine, code, strings.TrimSpace(text))
	}
	if now := t.Node(victim).Metric(refusedRequests); now < before+3 {
		t.Fail("the hub of %s has counted %v refusals, want 3", victim, now-before)
	}

	t.Say("the keys of its hub, shown as a client's")
	pair, err := tls.LoadX509KeyPair(serving, serving)
	t.Must(err)
	local := filepath.Join(t.Node(stolen).HubKeys(), "local.pem")
	own, err := tls.LoadX509KeyPair(local, local)
	t.Must(err)
	keys := loot{"serving": pair, "own port": own}
	for key := range keys {
		for _, url := range []string{
			atCloud + nodes, atCoordinator + nodes, "https://" + net.JoinHostPort(t.Node(victim).Address(), "10250") + "/pods",
		} {
			code, text := keys.tries(t, key, stolen, http.MethodGet, url)
			if code != http.StatusUnauthorized && code != http.StatusForbidden && (code != 0 || !kit.ShutOut(text)) {
				t.Fail("%s with the key %s: %d %s", url, key, code, text)
			}
		}
	}
	posed(t, stolen, victim, atCloud, keys)
	fromItsCache(t, stolen)
}

// posed runs servers with the stolen keys that pose as others, for clients with all authorities that Pods and kubelet trust.
func posed(t *kit.T, stolen, victim, cloud string, keys loot) {
	t.Say("posing with the keys of its hub")
	mounted, err := t.Node(stolen).PodAuthorities()
	t.Must(err)
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	t.Must(rest.LoadTLSFiles(access))
	pods := x509.NewCertPool()
	pods.AppendCertsFromPEM(mounted)
	pods.AppendCertsFromPEM(access.CAData)
	kubelets := func(node string) *x509.CertPool {
		trusted := x509.NewCertPool()
		content, err := os.ReadFile(filepath.Join(t.Node(node).HubKeys(), "local.crt"))
		t.Must(err)
		trusted.AppendCertsFromPEM(content)
		return trusted
	}
	server, _, err := net.SplitHostPort(strings.TrimPrefix(cloud, "https://"))
	t.Must(err)
	accepted := func(key, name string, trusted *x509.CertPool) error { return handshake(t, keys[key], name, trusted) }
	if err := accepted("serving", t.Node(stolen).Address(), pods); err != nil {
		t.Fail("as itself, to Pods: %w", err)
	}
	if err := accepted("own port", "127.0.0.1", kubelets(stolen)); err != nil {
		t.Fail("as itself, to kubelet: %w", err)
	}
	for _, a := range []struct {
		key, name string
		trusted   *x509.CertPool
	}{
		{"serving", t.Node(victim).Address(), pods}, {"serving", "127.0.0.1", kubelets(victim)},
		{"own port", "127.0.0.1", kubelets(victim)}, {"own port", t.Node(victim).Address(), pods},
		{"serving", edge.PoolName("p1").CoordinatorServerName(), pods},
		{"serving", t.Node(t.Pool.CoordinatorNode()).Address(), pods},
		{"serving", server, pods}, {"serving", "kubernetes.default.svc", pods}, {"serving", "localhost", pods},
	} {
		err := accepted(a.key, a.name, a.trusted)
		if err == nil {
			t.Fail("whoever has the hub's key for %s passes for %s", a.key, a.name)
		}
		t.Say("refused: the key for %s as %s: %v", a.key, a.name, err)
	}
}

// handshake returns the error of a client that trusts these authorities, when a server with this key claims to have this name.
func handshake(t *kit.T, key tls.Certificate, name string, trusted *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(t.Ctx, 10*time.Second)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a pipe without a buffer has both wait for each other
	t.Must(err)
	defer listener.Close()
	var serving sync.WaitGroup
	serving.Go(func() { // it fails with the client
		at, err := listener.Accept()
		if err != nil {
			return
		}
		with := &tls.Config{Certificates: []tls.Certificate{key}, MinVersion: tls.VersionTLS12}
		_ = tls.Server(at, with).HandshakeContext(ctx)
		_ = at.Close()
	})
	defer serving.Wait()
	client := tls.Dialer{Config: &tls.Config{RootCAs: trusted, ServerName: name, MinVersion: tls.VersionTLS12}}
	conn, err := client.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// fromItsCache starts the hub from its cache where nothing can be reached: with the key beside it, and without.
func fromItsCache(t *kit.T, stolen string) {
	t.Say("%s is taken away, and its hub started from the cache: with the key beside it, and without", stolen)
	dir, err := t.Lab.HubCacheDir(stolen)
	t.Must(err)
	key := strings.TrimRight(dir, "/") + ".key"
	if mode, err := os.Stat(key); err != nil || mode.Mode().Perm() != 0o600 {
		t.Fail("the key of the cache: %v, %w", mode, err)
	}
	t.Cut(stolen)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, stolen, wire.Drop))
	nothingToRead(t, stolen)
	has := func(name string) bool {
		list, err := t.Node(stolen).List("/api/v1/namespaces/" + kit.Namespace + "/secrets?fieldSelector=metadata.name%3D" + name)
		return err == nil && strings.Contains(fmt.Sprint(list["items"]), name)
	}
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, stolen, lab.Hub))
	t.Eventually(60*time.Second, "with the key, the hub has the Secret of its own Pod", func() error {
		if !has(kit.NeedyName) {
			return fmt.Errorf("it has not got %s", kit.NeedyName)
		}
		return nil
	})
	if has(neighboursSecret) {
		t.Fail("the cache has a Secret that no Pod of %s has", stolen)
	}
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, stolen, lab.Hub))
	t.Must(os.Rename(key, key+".elsewhere"))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, stolen, lab.Hub))
	t.Eventually(60*time.Second, "without the key, the hub has the node's Pods, whose names are in the clear", func() error {
		list, err := t.Node(stolen).List("/api/v1/pods?fieldSelector=spec.nodeName%3D" + stolen)
		if err == nil && !strings.Contains(fmt.Sprint(list["items"]), kit.NeedyName) {
			err = fmt.Errorf("they are %v", list["items"])
		}
		return err
	})
	if has(kit.NeedyName) || has(neighboursSecret) {
		t.Fail("the cache shows a Secret without its key")
	}
	logs, err := t.Lab.Logs()
	t.Must(err)
	said := false
	for _, path := range logs {
		if strings.Contains(path, "/"+stolen+"/") && strings.HasPrefix(filepath.Base(path), string(lab.Hub)) {
			content, err := os.ReadFile(path)
			t.Must(err)
			said = said || strings.Contains(string(content), "encrypted on the disk with another key")
		}
	}
	if !said {
		t.Fail("the hub of %s does not say that its cache was encrypted with another key", stolen)
	}
	t.Say("without the key there is no Secret, and the hub says so")
}

// showing makes a request with a bearer token from a machine, and returns the answer's code and the beginning of its text.
func showing(t *kit.T, token, machine, url string) (int, string) {
	client := &http.Client{Timeout: commandTimeout, Transport: careless(t, machine)}
	r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet, url, nil)
	t.Must(err)
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	response, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	return response.StatusCode, string(text)
}
