// Package address finds the address at which a node is reached, as its Node object says, and follows it.
//
// What kubelet follows of its Node goes through the hub, and so says a change without a request of the hub's own. Only a hub
// through which no kubelet goes yet asks the cloud. What was found is on the disk: a node that starts with no network serves
// where it did.
//
// The alternative was the machine's interfaces. They change without the cloud's knowledge, and a certificate is given for the
// Node's addresses alone.
package address

import (
	"context"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/keyfile"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// fileName is in the directory that Config names. It holds one address.
const fileName = "node-address"

const (
	// askMin and askMax bound the pause between two questions while nothing is known.
	askMin, askMax = time.Second, 30 * time.Second
	// askEvery is the pause while an address is known, and kubelet does not say it.
	askEvery = 5 * time.Minute
	// askFor bounds one question.
	askFor = 5 * time.Second
)

// Config is what a Finder needs. All fields are required.
type Config struct {
	// Dir is where the address is kept.
	Dir string
	// Own returns the Node as kubelet follows it, if it does; Ask asks the cloud for it.
	Own func() (*corev1.Node, bool)
	Ask func(ctx context.Context) (*corev1.Node, error)
	// Found takes the address.
	Found *live.Value[netip.Addr]
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Finder finds the address. Make one with New.
type Finder struct {
	cfg  Config
	kick chan struct{}
}

// New returns a Finder that does nothing until Run.
func New(c Config) *Finder { return &Finder{c, make(chan struct{}, 1)} }

// Recall returns the address that a Finder found last; not valid if there is none.
func Recall(dir string) netip.Addr {
	d := keyfile.Dir{Path: dir}
	content, err := keyfile.Read(d.File(fileName))
	if err != nil {
		return netip.Addr{}
	}
	found, err := netip.ParseAddr(strings.TrimSpace(string(content)))
	if err != nil {
		return netip.Addr{}
	}
	return found
}

// Of returns the first InternalIP of a Node at which others can reach it; not valid if it has none.
func Of(n *corev1.Node) netip.Addr {
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

// Changed says that what kubelet follows may be another. It does not block.
func (f *Finder) Changed() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Run follows the address until ctx ends, and returns nil.
func (f *Finder) Run(ctx context.Context) error {
	pause := run.Backoff{Min: askMin, Max: askMax}
	var next time.Time
	for ctx.Err() == nil {
		node, ok := f.cfg.Own()
		wait := askEvery
		switch {
		case ok:
			f.take(ctx, node)
		case f.cfg.Ends.Running().Before(next):
			wait = f.cfg.Ends.Until(next)
		default:
			if node, err := f.ask(ctx); err == nil {
				f.take(ctx, node)
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

func (f *Finder) ask(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return f.cfg.Ask(ctx)
}

// take takes what a Node says. One that has no address keeps the last.
func (f *Finder) take(ctx context.Context, n *corev1.Node) {
	found := Of(n)
	if !found.IsValid() || !f.cfg.Found.Set(found) {
		return
	}
	logger := klog.FromContext(ctx).WithValues("address", found)
	logger.Info("The node's address is known")
	d := keyfile.Dir{Path: f.cfg.Dir}
	if err := d.Write(fileName, []byte(found.String()+"\n")); err != nil {
		logger.Error(err, "Not kept: the node's address")
	}
}

// rest pauses until kubelet may say something else.
func (f *Finder) rest(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.kick:
	case <-ctx.Done():
	}
}
