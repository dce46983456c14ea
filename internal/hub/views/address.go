package views

import (
	"context"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// addressFile is the file, in finderConfig.Dir, that holds the last address.
const addressFile = "node-address"

const (
	// askMin and askMax bound the pause between two questions while nothing is known.
	askMin, askMax = time.Second, 30 * time.Second
	// askEvery is the pause while an address is known and kubelet does not follow the Node.
	askEvery = 5 * time.Minute
	// askFor bounds one question.
	askFor = 5 * time.Second
)

// finderConfig configures a finder. All fields are required.
type finderConfig struct {
	// Dir is the directory of addressFile.
	Dir string
	// Own returns the Node that kubelet follows, and false if it follows none. Ask asks the cloud for the Node.
	Own func() (*corev1.Node, bool)
	Ask func(ctx context.Context) (*corev1.Node, error)
	// Found receives the address.
	Found *live.Value[netip.Addr]
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// finder follows the node's address in the Node object, and stores it on the disk. So a node that starts without a network serves
// at its last address. Make one with newFinder.
//
// kubelet follows its Node through the hub, so the hub sees a change without a request of its own. The finder asks the cloud only
// while kubelet does not use the hub.
//
// The alternative was to read the addresses of the machine's interfaces. They change without the cloud's knowledge, and a
// certificate is issued only for the Node's addresses.
type finder struct {
	cfg  finderConfig
	kick chan struct{}
}

// newFinder returns a finder that does nothing until Run.
func newFinder(c finderConfig) *finder { return &finder{c, make(chan struct{}, 1)} }

// recallAddress returns the address that a finder last stored; the zero Addr if there is none.
func recallAddress(dir string) netip.Addr {
	d := identity.KeyDir{Path: dir}
	content, err := identity.ReadKeyFile(d.File(addressFile))
	if err != nil {
		return netip.Addr{}
	}
	found, err := netip.ParseAddr(strings.TrimSpace(string(content)))
	if err != nil {
		return netip.Addr{}
	}
	return found
}

// addressOf returns the first InternalIP of a Node that others can reach; the zero Addr if it has none.
func addressOf(n *corev1.Node) netip.Addr {
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.IsGlobalUnicast() {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// Changed says that the Node that kubelet follows may have changed. It does not block.
func (f *finder) Changed() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Run follows the address until ctx ends, and returns nil.
func (f *finder) Run(ctx context.Context) error {
	pause := run.Backoff{Min: askMin, Max: askMax}
	var next time.Time
	for ctx.Err() == nil {
		node, ok := f.cfg.Own()
		wait := askEvery
		switch {
		case ok:
			f.apply(ctx, node)
		case f.cfg.Ends.Running().Before(next):
			wait = f.cfg.Ends.Until(next)
		default:
			if node, err := f.getNode(ctx); err == nil {
				f.apply(ctx, node)
			} else {
				klog.FromContext(ctx).V(1).Info("The cloud does not say at which address this node is", "err", err)
			}
			if !f.cfg.Found.Get().IsValid() {
				wait = pause.Next(f.cfg.Ends.Float64())
			}
			next = f.cfg.Ends.Running().Add(wait)
		}
		f.rest(ctx, wait)
	}
	return nil
}

func (f *finder) getNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return f.cfg.Ask(ctx)
}

// apply stores the address of a Node. A Node without an address changes nothing.
func (f *finder) apply(ctx context.Context, n *corev1.Node) {
	found := addressOf(n)
	if !found.IsValid() || !f.cfg.Found.Set(found) {
		return
	}
	logger := klog.FromContext(ctx).WithValues("address", found)
	logger.Info("The node's address is known")
	d := identity.KeyDir{Path: f.cfg.Dir}
	if err := d.Write(addressFile, []byte(found.String()+"\n")); err != nil {
		logger.Error(err, "Not kept: the node's address")
	}
}

// rest pauses until the time is up or Changed is called.
func (f *finder) rest(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.kick:
	case <-ctx.Done():
	}
}
