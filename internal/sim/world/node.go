package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/internal/sim/stock"
)

// node is a machine of the pool, with its hub and its kubelet.
type node struct {
	*machine
	hub, kubelet *program
	ofSecond     bool // the hub uses the second API server, if that is well
	// joined are the files that the hub got when the node joined, by their names in its --cert-dir.
	joined     map[string][]byte
	containers *stock.Containers
	beats      beats
	// reads are what the node's reader has read.
	reads []*reading
}

// beats are the heartbeats that kubelet sends.
type beats struct {
	mu   sync.Mutex
	last time.Time // when kubelet last sent a heartbeat
	// told are the heartbeats of which kubelet was told that they are taken, and of which the cloud has not shown anything yet.
	told []taken
	// sent is when kubelet sent each stamp of the last minutes. A stamp is in microseconds of kubelet's own clock.
	sent map[int64]time.Time
}

// taken is a heartbeat that was taken: when kubelet sent it, and when kubelet was told that it is taken.
type taken struct{ sent, told time.Time }

// listening notes the heartbeats that kubelet sends to its hub.
type listening struct {
	http.RoundTripper
	to *beats
}

// RoundTrip implements http.RoundTripper.
func (l listening) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/namespaces/"+corev1.NamespaceNodeLease+"/leases") {
		return l.RoundTripper.RoundTrip(r)
	}
	sent, stamp := time.Now(), stampOf(r)
	l.to.mu.Lock()
	l.to.last, l.to.sent[stamp] = sent, sent
	maps.DeleteFunc(l.to.sent, func(_ int64, at time.Time) bool { return sent.Sub(at) > remembered })
	l.to.mu.Unlock()
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode <= http.StatusCreated {
		l.to.mu.Lock()
		l.to.told = append(l.to.told, taken{sent, time.Now()})
		l.to.mu.Unlock()
	}
	return answer, err
}

// remembered is how long the oracle remembers what was sent.
const remembered = 5 * time.Minute

// stampOf returns the renewTime in a write of a Lease, in microseconds; 0 means none. The body can still be read afterwards.
func stampOf(r *http.Request) int64 {
	data, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(data))
	if err != nil {
		return 0
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	l, ok := o.(*coordinationv1.Lease)
	if err != nil || !ok || l.Spec.RenewTime == nil {
		return 0
	}
	return l.Spec.RenewTime.UnixMicro()
}

// sentAt returns when kubelet sent a stamp; zero means never. A writer may have moved the stamp on since then, by up to steps.
func (b *beats) sentAt(stamp int64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	for by := range steps.Microseconds() + 1 {
		if at, ok := b.sent[stamp-by]; ok {
			return at
		}
	}
	return time.Time{}
}

// owed returns when kubelet was told that its heartbeat is taken, if the cloud does not have that heartbeat. Of several such
// heartbeats, the first counts. owed also returns when kubelet sent its last heartbeat. The parameter renewed is when the Lease
// in the cloud was last renewed. The cloud has all that kubelet had sent by then.
func (b *beats) owed(renewed time.Time) (since, last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = slices.DeleteFunc(b.told, func(t taken) bool { return !t.sent.After(renewed) })
	if len(b.told) > 0 {
		since = b.told[0].told
	}
	return since, b.last
}

// resumed takes in that the machine stood still, from the parameter since until now. What kubelet sent in that time, or just
// before it, leaves the machine only now.
func (b *beats) resumed(since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.last.After(since.Add(-travels)) {
		b.last = now
		for stamp, at := range b.sent {
			if at.After(since.Add(-travels)) {
				b.sent[stamp] = now
			}
		}
	}
}

// forgive forgets the heartbeats that the cloud does not have.
func (b *beats) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = nil
}

func (w *World) newNode(i int) (*node, error) {
	name := fmt.Sprintf("n%d", i)
	m, err := w.machine(name, fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250))
	if err != nil {
		return nil, err
	}
	n := &node{machine: m, ofSecond: i%2 == 1, containers: &stock.Containers{}, beats: beats{sent: map[int64]time.Time{}}}
	n.hub = m.program("hub", n.runHub)
	n.kubelet = m.program("kubelet", n.runKubelet)
	client, err := w.ca.Issue(pki.Request{
		Name: name, CommonName: edge.NodeName(name).User(), Organizations: []string{edge.GroupNodes}, Client: true,
	})
	if err != nil {
		return nil, err
	}
	serving, err := w.hubs.Issue(pki.Request{
		Name: name, CommonName: edge.NodeName(name).HubUser(), Server: true, IPs: []net.IP{parsed(m.ip)},
	})
	if err != nil {
		return nil, err
	}
	n.joined = map[string][]byte{}
	for file, parts := range map[string][]string{
		"client.pem": {client.Cert, client.Key}, "hub.pem": {serving.Cert, w.hubs.Files().Cert, serving.Key},
	} {
		for _, part := range parts {
			content, err := os.ReadFile(part)
			if err != nil {
				return nil, err
			}
			n.joined[file] = append(n.joined[file], content...)
		}
	}
	return n, n.install()
}

// install writes the files that a hub gets when its node joins into the directory where the hub keeps them
// (internal/hub/identity). The certificates in them last longer than any history, so no signer is needed.
func (n *node) install() error {
	err := os.MkdirAll(n.file("keys"), 0o700)
	for name, content := range n.joined {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.file("keys"), name), content, 0o600))
	}
	return err
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

func (n *node) hubConfig() (config.Config, error) {
	var c config.Config
	fs := pflag.NewFlagSet("hub", pflag.ContinueOnError)
	c.AddFlags(fs)
	args := []string{
		"--node-name=" + n.name, "--nodepool-name=" + ownPool, "--server-addr=https://" + n.world.cloud.ip + ":6443",
		"--ca-file=" + n.world.ca.Files().Cert, "--bootstrap-file=" + n.file("no-token"), "--secure-bind-address=" + n.ip,
		"--cert-dir=" + n.file("keys"), "--disk-cache-path=" + n.file("cache"), "--kubelet-config=", "--own-objects=false",
	}
	if n.world.cfg.Unrelayed {
		args = append(args, "--relay=Off")
	}
	if n.world.cfg.Coordinators > 0 {
		var at []string
		for _, m := range n.world.nodes[:n.world.cfg.Coordinators] {
			at = append(at, "https://"+m.ip+":10270")
		}
		args = append(args, "--enable-coordinator", "--coordinator-server-addr="+strings.Join(at, ","))
	}
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	return c, nil
}

// ends returns what the hub takes from its machine. The hub's connections have the same limits as those of upstream's Dial and
// DialNear.
func (n *node) ends(p *network.Process) ends.Ends {
	return ends.Ends{
		Clock: n.clock(), Chance: ends.Chance{Source: n.world.numbers()},
		Net: ends.Net{
			Dial:     n.balanced(p.Dialer(network.Options{Unacknowledged: 12 * time.Second, KeepAlive: 90 * time.Second})),
			DialNear: p.Dialer(network.Options{Unacknowledged: 3 * time.Second, KeepAlive: time.Second}),
			Listen:   p.Listen,
			Lookup:   func(context.Context, string) ([]netip.Addr, error) { return nil, os.ErrNotExist },
		},
	}
}

func (n *node) runHub(ctx context.Context, p *network.Process) error {
	c, err := n.hubConfig()
	if err != nil {
		return err
	}
	h, err := hub.New(c, n.ends(p))
	if err != nil {
		return err
	}
	return h.Run(n.world.logs(ctx, n.name+"/hub"))
}

// runKubelet runs kubelet, which reaches the cloud through its hub.
func (n *node) runKubelet(ctx context.Context, p *network.Process) error {
	if !n.hasToken(ctx) {
		return nil
	}
	k := stock.Kubelet{
		Client: &rest.Config{
			Host: "https://127.0.0.1:10261", Dial: p.Dial, QPS: -1, BearerTokenFile: n.file("keys/" + front.FileToken),
			TLSClientConfig: rest.TLSClientConfig{CAFile: n.file("keys/" + front.FileCertificate)},
			UserAgent:       "kubelet",
			WrapTransport:   func(to http.RoundTripper) http.RoundTripper { return listening{to, &n.beats} },
		},
		Node: aNode(n.machine, ownPool), Wall: n.wall, Containers: n.containers,
	}
	return k.Run(ctx)
}

// hasToken waits for the hub's token, as systemd starts a program again until it is there. It returns false if ctx has ended.
func (n *node) hasToken(ctx context.Context) bool {
	for {
		if _, err := os.Stat(n.file("keys/" + front.FileToken)); err == nil {
			return true
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return false
		}
	}
}

// aNode is what a machine's kubelet says of it. The pool is a zone, too: kube-controller-manager judges by zones.
func aNode(m *machine, pool string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{
			edge.LabelNodePool: pool, corev1.LabelTopologyZone: pool, corev1.LabelTopologyRegion: "r",
		}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.ip}}},
	}
}

// steady makes one node of a second pool, which has no hubs and to which nothing happens. As long as this second pool's zone is
// healthy, kube-controller-manager evicts at the full rate from a zone that has no Ready node.
func (w *World) steady(i int) error {
	m, err := w.machine(fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.2.%d", i))
	if err != nil {
		return err
	}
	cert, err := w.ca.Issue(pki.Request{
		Name: m.name, CommonName: "system:node:" + m.name, Organizations: []string{"system:nodes"}, Client: true,
	})
	if err != nil {
		return err
	}
	access, err := w.direct(cert)
	if err != nil {
		return err
	}
	containers := &stock.Containers{}
	m.program("kubelet", func(ctx context.Context, p *network.Process) error {
		cfg := rest.CopyConfig(access)
		cfg.Dial = p.Dial
		return stock.Kubelet{Client: cfg, Node: aNode(m, "p2"), Wall: m.wall, Containers: containers}.Run(ctx)
	})
	return nil
}

// direct returns access to the cloud's API server with a certificate. It reads the certificate's files itself, because client-go
// would ask each second whether they have changed, and would never stop.
func (w *World) direct(cert pki.Pair) (*rest.Config, error) {
	c := &rest.Config{Host: "https://" + w.cloud.ip + ":6443", QPS: -1}
	var err [3]error
	c.CAData, err[0] = os.ReadFile(w.ca.Files().Cert)
	c.CertData, err[1] = os.ReadFile(cert.Cert)
	c.KeyData, err[2] = os.ReadFile(cert.Key)
	return c, errors.Join(err[:]...)
}
