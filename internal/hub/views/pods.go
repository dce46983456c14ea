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
	// maxPodConnections bounds the connections to the Pods' port from one address. client-go has one for each of a program's
	// identities; Pods on the host's network share its address.
	maxPodConnections = 128
	// maxOfAllPods bounds those of all addresses: nine for each of the 110 Pods that a node may have. They cost some 50 MB.
	maxOfAllPods = 1024
)

// EntranceConfig is what an Entrance needs. Fields without a default are required.
type EntranceConfig struct {
	Node edge.NodeName
	// Fixed is the address at which Pods are served. OfNode serves them at the one that the Node object says, which is followed,
	// and kept in Dir. Neither serves none.
	Fixed  netip.Addr
	OfNode bool
	Dir    string
	Port   uint16
	// Tell has kubelet tell Pods that start from now on, and kube-proxy, that the API server is there.
	Tell bool
	// Shown are the ConfigMaps that kubelet sees in another form.
	Shown *ConfigMaps
	// Served returns the certificate that the hub has for Pods, nil if it has none, with what verifies it behind it. It is not
	// called before Follow or Tell.
	Served func() *live.Value[*tls.Certificate]
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Entrance is how Pods come to the hub. Make one with New, tell it with Follow and Serve what it needs, and Run it.
type Entrance struct {
	cfg EntranceConfig
	// address is where Pods are served; nil means nowhere, and not valid that it is not known yet.
	address *live.Value[netip.Addr]
	// serves is how they are served, and trouble why they are not, at present.
	serves  front.ServerConfig
	trouble *live.Value[string]
	// master is how kubelet is shown the Service by which it tells Pods where the API server is.
	master *Master
	// told is where it tells them that the hub is; not valid means that it does not.
	told *live.Value[netip.AddrPort]
	// moved is called when the Node may say another address.
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

// Address returns where Pods are served, which is not valid while it is not known; nil means nowhere.
func (e *Entrance) Address() *live.Value[netip.Addr] { return e.address }

// View is how kubelet sees the Service by which it tells Pods where the API server is.
func (e *Entrance) View(s cache.Selection) replica.View { return e.master.View(s) }

// Follow makes what Run runs: what tells Pods, follows the node's address, and serves there. nodes asks the cloud for the Node,
// and own returns it as kubelet follows it, if it does.
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

// Serve says how Pods are served, but for the bounds of their connections, and returns that with these. Call it before Run.
func (e *Entrance) Serve(by front.ServerConfig) front.ServerConfig {
	by.PerSource, by.All = maxPodConnections, maxOfAllPods
	e.serves = by
	return by
}

// Run tells Pods where they find the hub, and serves them where the node is, until ctx ends. At a fixed address somebody else
// serves them.
func (e *Entrance) Run(ctx context.Context) error { return e.parts.Run(ctx) }

// Changed says that what is followed for the node's programs has changed. It does not block.
func (e *Entrance) Changed() { e.moved() }

// node returns the Node as kubelet follows it, if it does.
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

// Tell has kubelet tell Pods that start from now on where the hub is, if they can come there.
func (e *Entrance) Tell() {
	if e.address == nil || !e.cfg.Tell {
		return
	}
	at := netip.AddrPortFrom(e.address.Get(), e.cfg.Port)
	authorities, certified := e.certifiedAt(at.Addr())
	if !certified && e.cfg.OfNode {
		// Whoever asked for an address knows that it needs a certificate. This is the default of join, also where nobody gives
		// one.
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

// certifiedAt reports whether the hub has a certificate for an address, and returns the authorities that verify it.
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
