package hub

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/address"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/filter"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/health"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// pods is how Pods come to the hub.
type pods struct {
	// address is where they are served; nil means nowhere, and not valid that it is not known yet.
	address *live.Value[netip.Addr]
	// serves is how they are served, and trouble why they are not, at present.
	serves  front.ServerConfig
	trouble *live.Value[string]
	// master is how kubelet is shown the Service by which it tells Pods where the API server is.
	master *filter.Master
	// told is where it tells them that the hub is; not valid means that it does not.
	told *live.Value[netip.AddrPort]
}

func newPods() pods {
	return pods{trouble: live.NewValue(""), master: filter.NewMaster(netip.AddrPort{}), told: live.NewValue(netip.AddrPort{})}
}

// podsAddress makes what is known of how Pods come to the hub, and returns the address at which they are served.
func (h *Hub) podsAddress() *live.Value[netip.Addr] {
	p := &h.pods
	switch at := h.cfg.SecureBindAddress; at {
	case "":
	case config.OfNode:
		p.address = live.NewValue(address.Recall(h.cfg.CertDir))
	default:
		fixed, _ := netip.ParseAddr(at) // Validate has seen it
		p.address = live.NewValue(fixed.Unmap())
	}
	return p.address
}

// findPods adds what follows the node's address, and what serves and tells Pods there.
func (h *Hub) findPods() error {
	if h.pods.address == nil {
		return nil
	}
	h.parts.Add("where Pods find the hub", h.followPods)
	if h.cfg.SecureBindAddress != config.OfNode {
		return nil
	}
	cloud, err := corev1client.NewForConfig(h.cloud.RESTConfig())
	if err != nil {
		return err
	}
	finder := address.New(address.Config{
		Dir: h.cfg.CertDir, Found: h.pods.address, Own: h.ownNode,
		Ask: func(ctx context.Context) (*corev1.Node, error) {
			return cloud.Nodes().Get(ctx, string(h.cfg.Node), metav1.GetOptions{})
		},
	})
	before := h.changed
	h.changed = func() {
		before()
		finder.Changed()
	}
	h.parts.Add("address of the node", finder.Run)
	h.parts.Add("pods", h.servePods)
	return nil
}

// ownNode returns the Node as kubelet follows it, if it does.
func (h *Hub) ownNode() (*corev1.Node, bool) {
	o, ok := h.followed.OwnObject(stream.ID{Resource: "nodes", Key: stream.Key{Name: string(h.cfg.Node)}})
	if !ok {
		return nil, false
	}
	n := &corev1.Node{}
	return n, n.Unmarshal(o.Raw) == nil
}

// followPods tells Pods where the hub is, until ctx ends.
func (h *Hub) followPods(ctx context.Context) error {
	for {
		_, moved := h.pods.address.Watch()
		_, renewed := h.identity.Served().Watch()
		h.tellPods()
		select {
		case <-moved:
		case <-renewed:
		case <-ctx.Done():
			return nil
		}
	}
}

// tellPods has kubelet tell Pods that start from now on where the hub is, if they can come there.
func (h *Hub) tellPods() {
	if h.pods.address == nil || !h.cfg.MasterService {
		return
	}
	at := netip.AddrPortFrom(h.pods.address.Get(), uint16(h.cfg.SecurePort))
	authorities, certified := h.certifiedAt(at.Addr())
	if !certified && h.cfg.SecureBindAddress == config.OfNode {
		// Whoever asked for an address knows that it needs a certificate. This is the default of join, also where nobody gives
		// one.
		at = netip.AddrPort{}
	}
	h.pods.master.Move(at)
	url := ""
	if certified {
		url = "https://" + at.String()
	}
	h.shown.Change(filter.KubeProxy.Name, filter.KubeProxyInputs(url, authorities))
	if h.pods.told.Set(at) {
		klog.Background().Info("Where Pods that start from now on are told that the API server is", "address", at)
	}
}

// certifiedAt reports whether the hub has a certificate for an address, and returns the authorities that verify it.
func (h *Hub) certifiedAt(at netip.Addr) (authorities string, certified bool) {
	pair := h.identity.Served().Get()
	if pair == nil || !at.IsValid() || pair.Leaf.VerifyHostname(at.String()) != nil {
		return "", false
	}
	for _, der := range pair.Certificate[1:] {
		authorities += string(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
	}
	return authorities, true
}

// errMoved says that the node's address is another.
var errMoved = errors.New("the node's address is another")

// listenPause bounds the pause between two tries to listen at the node's address: it may not be on an interface yet.
const listenPause = 10 * time.Second

// servePods serves Pods at the node's address, whatever that is, until ctx ends.
func (h *Hub) servePods(ctx context.Context) error {
	for ctx.Err() == nil {
		at, err := h.pods.address.Wait(ctx, netip.Addr.IsValid)
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		same, stop := h.pods.address.While(ctx, func(now netip.Addr) bool { return now == at }, errMoved)
		err = h.servePodsAt(same, netip.AddrPortFrom(at, uint16(h.cfg.SecurePort)))
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *Hub) servePodsAt(ctx context.Context, at netip.AddrPort) error {
	logger := klog.FromContext(ctx).WithValues("address", at)
	for pause := (run.Backoff{Min: time.Second, Max: listenPause}); ctx.Err() == nil; _ = run.Pause(ctx, pause.Next()) {
		server, err := front.Listen(at.String(), h.pods.serves)
		if err != nil {
			if h.pods.trouble.Set(fmt.Sprintf("cannot listen at %s: %v", at, err)) {
				logger.Error(err, "Cannot serve Pods, trying again")
			}
			continue
		}
		h.pods.trouble.Set("")
		logger.Info("Serving Pods")
		if err := server.Run(ctx); err != nil {
			return fmt.Errorf("serving Pods at %s: %w", at, err)
		}
	}
	return nil
}

// podsStatus says where Pods are served; nil if they are not.
func (h *Hub) podsStatus() *health.PodsStatus {
	p := &h.pods
	if p.address == nil {
		return nil
	}
	at := p.address.Get()
	s := &health.PodsStatus{Told: p.told.Get().IsValid(), Problem: p.trouble.Get()}
	if at.IsValid() {
		s.Address = netip.AddrPortFrom(at, uint16(h.cfg.SecurePort)).String()
	} else {
		s.Problem = "the cloud has not said yet at which address this node is"
	}
	if _, certified := h.certifiedAt(at); !certified && s.Problem == "" {
		s.Problem = "there is no certificate for that address yet"
	}
	return s
}
