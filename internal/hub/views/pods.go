package views

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// maxPodConnections bounds the connections from one address to the port for Pods. client-go opens one connection for each
	// credential, and all Pods on the host's network share the host's address.
	maxPodConnections = 128
	// maxOfAllPods bounds the connections from all addresses: nine for each of the 110 Pods that a node may have by default. They
	// cost some 50 MB.
	maxOfAllPods = 1024
)

// EntranceConfig configures an Entrance. Fields without a default are required.
type EntranceConfig struct {
	Node edge.NodeName
	// Fixed is the address at which the hub serves Pods. If OfNode is set, the hub serves at the address in the Node object
	// instead, follows that address, and stores it in Dir. Without either, the hub does not serve Pods.
	Fixed  netip.Addr
	OfNode bool
	Dir    string
	Port   uint16
	// Tell says to tell kube-proxy, and Pods that start from now on, that the API server is at that address and Port.
	Tell bool
	// Shown are the ConfigMaps that kubelet sees in another form.
	Shown *ConfigMaps
	// Served returns the hub's certificate for Pods, followed by the CA certificates that verify it. A nil value means that there
	// is no certificate. NewEntrance does not call Served.
	Served func() *live.Value[*tls.Certificate]
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Entrance serves Pods and tells them where to find the hub. Make one with NewEntrance, configure it with Follow and Serve,
// then call Run.
type Entrance struct {
	cfg EntranceConfig
	// address is where the hub serves Pods. nil means nowhere; an invalid Addr means that the address is not known yet.
	address *live.Value[netip.Addr]
	// serves is the server's configuration; trouble says why the hub does not serve Pods at present.
	serves  front.ServerConfig
	trouble *live.Value[string]
	// master is kubelet's view of the Service by which it tells Pods where the API server is.
	master *Master
	// told is the hub's address that kubelet tells Pods; an invalid one means that kubelet does not tell Pods of the hub.
	told *live.Value[netip.AddrPort]
	// moved is called when the Node's address may have changed.
	moved func()
	parts run.Group
}

// NewEntrance returns an Entrance that serves nobody yet.
func NewEntrance(cfg EntranceConfig) *Entrance {
	e := &Entrance{
		cfg: cfg, trouble: live.NewValue(""), master: NewMaster(netip.AddrPort{}), told: live.NewValue(netip.AddrPort{}),
		moved: func() {},
	}
	switch {
	case cfg.OfNode:
		e.address = live.NewValue(recallAddress(cfg.Dir))
	case cfg.Fixed.IsValid():
		e.address = live.NewValue(cfg.Fixed.Unmap())
	}
	return e
}

// Address returns where the hub serves Pods; nil means nowhere. While the address is not known, the value is an invalid Addr.
func (e *Entrance) Address() *live.Value[netip.Addr] { return e.address }

// View returns kubelet's view of the Service by which it tells Pods where the API server is.
func (e *Entrance) View(s cache.Selection) replica.View { return e.master.View(s) }

// Follow makes Run tell Pods where the hub is. With OfNode, it also makes Run follow the node's address and serve there. The
// client nodes asks the cloud for the Node; the function own returns the Node that kubelet follows, if any.
func (e *Entrance) Follow(nodes corev1client.NodesGetter, own func(stream.ID) (stream.Object, bool)) {
	e.parts.Add("where Pods find the hub", e.follow)
	if !e.cfg.OfNode {
		return
	}
	finder := newFinder(finderConfig{
		Dir: e.cfg.Dir, Found: e.address, Ends: e.cfg.Ends, Own: func() (*corev1.Node, bool) { return node(e.cfg.Node, own) },
		Ask: func(ctx context.Context) (*corev1.Node, error) {
			return nodes.Nodes().Get(ctx, string(e.cfg.Node), metav1.GetOptions{})
		},
	})
	e.moved = finder.Changed
	e.parts.Add("address of the node", finder.Run)
	e.parts.Add("pods", e.serve)
}

// Serve sets the server's configuration, adds the bounds on connections, and returns the result. Call it before Run.
func (e *Entrance) Serve(by front.ServerConfig) front.ServerConfig {
	by.PerSource, by.All = maxPodConnections, maxOfAllPods
	e.serves = by
	return by
}

// Run tells Pods where the hub is, and serves them at the node's address, until ctx ends. Another server of the hub serves at a
// fixed address.
func (e *Entrance) Run(ctx context.Context) error { return e.parts.Run(ctx) }

// Changed says that a selection of the node's programs has changed. It does not block.
func (e *Entrance) Changed() { e.moved() }

// node returns the Node that kubelet follows, and false if it follows none.
func node(name edge.NodeName, own func(stream.ID) (stream.Object, bool)) (*corev1.Node, bool) {
	o, ok := own(stream.ID{Resource: "nodes", Key: stream.Key{Name: string(name)}})
	if !ok {
		return nil, false
	}
	n := &corev1.Node{}
	return n, n.Unmarshal(o.Raw) == nil
}

// follow tells Pods where the hub is, until ctx ends.
func (e *Entrance) follow(ctx context.Context) error {
	for {
		_, moved := e.address.Watch()
		_, renewed := e.cfg.Served().Watch()
		e.Tell()
		select {
		case <-moved:
		case <-renewed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Tell makes kubelet tell new Pods where the hub is, if they can connect to it.
func (e *Entrance) Tell() {
	if e.address == nil || !e.cfg.Tell {
		return
	}
	at := netip.AddrPortFrom(e.address.Get(), e.cfg.Port)
	authorities, certified := e.certifiedAt(at.Addr())
	if !certified && e.cfg.OfNode {
		// An operator who configured an address knows that it needs a certificate. OfNode is the default of join, even where no
		// CA issues one.
		at = netip.AddrPort{}
	}
	e.master.Move(at)
	url := ""
	if certified {
		url = "https://" + at.String()
	}
	e.cfg.Shown.Change(KubeProxy.Name, KubeProxyInputs(url, authorities))
	if e.told.Set(at) {
		klog.Background().Info("Where Pods that start from now on are told that the API server is", "address", at)
	}
}

// certifiedAt reports whether the hub has a certificate for an address, and returns the CA certificates that verify it, in PEM.
func (e *Entrance) certifiedAt(at netip.Addr) (authorities string, certified bool) {
	pair := e.cfg.Served().Get()
	if pair == nil || !at.IsValid() || pair.Leaf.VerifyHostname(at.String()) != nil {
		return "", false
	}
	for _, der := range pair.Certificate[1:] {
		authorities += string(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
	}
	return authorities, true
}

// serve serves Pods at the node's address, whatever that is, until ctx ends.
func (e *Entrance) serve(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	at := front.Moving{
		Address: e.address, Port: e.cfg.Port, What: "serving Pods", Config: func() front.ServerConfig { return e.serves },
		Serves: func(at netip.AddrPort) {
			e.trouble.Set("")
			logger.Info("Serving Pods", "address", at)
		},
		Fails: func(at netip.AddrPort, err error) {
			if e.trouble.Set(fmt.Sprintf("cannot listen at %s: %v", at, err)) {
				logger.Error(err, "Cannot serve Pods, trying again", "address", at)
			}
		},
		Ends: func() {}, On: e.cfg.Ends.Net, Chance: e.cfg.Ends.Chance,
	}
	return at.Run(ctx)
}

// Status says where Pods are served; nil if they are not.
func (e *Entrance) Status() *front.PodsStatus {
	if e.address == nil {
		return nil
	}
	at := e.address.Get()
	s := &front.PodsStatus{Told: e.told.Get().IsValid(), Problem: e.trouble.Get()}
	if at.IsValid() {
		s.Address = netip.AddrPortFrom(at, e.cfg.Port).String()
	} else {
		s.Problem = "the cloud has not said yet at which address this node is"
	}
	if _, certified := e.certifiedAt(at); !certified && s.Problem == "" {
		s.Problem = "there is no certificate for that address yet"
	}
	return s
}
