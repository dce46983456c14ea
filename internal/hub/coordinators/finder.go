package coordinators

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/settings"
)

// File is the file in FinderConfig.Dir that stores the coordinators' addresses.
const File = "coordinator.json"

// ErrNone says that no coordinator is known.
var ErrNone = errors.New("the pool has no coordinator that this node knows of")

// FinderConfig configures a Finder.
type FinderConfig struct {
	Pool edge.PoolName
	// ConfigMaps are the cloud's ConfigMaps in edge.NamespaceSystem, as the node sees them.
	ConfigMaps corev1client.ConfigMapInterface
	// Dir is the directory of File. The Finder creates it, readable only by its owner.
	Dir string
	// Reachable waits until the cloud can be reached, or ctx ends. With it the Finder asks the cloud as soon as a long cut ends,
	// so that it soon knows of a coordinator that has moved meanwhile.
	Reachable func(ctx context.Context) error
	// Moved is called after each change of the address or CA of a slot's coordinator.
	Moved func(slot edge.Slot, is Target)
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Finder keeps the addresses of the pool's coordinators.
type Finder struct {
	pool   edge.PoolName
	notice *settings.Notice[Target]
}

// NewFinder returns a Finder with the content of the file.
func NewFinder(cfg FinderConfig) *Finder {
	return &Finder{cfg.Pool, settings.NewNotice(settings.NoticeConfig[Target]{
		About: "where the pool's coordinator is", Name: cfg.Pool.DiscoveryConfigMap(), ConfigMaps: cfg.ConfigMaps,
		Path: filepath.Join(cfg.Dir, File), Reachable: cfg.Reachable, Ends: cfg.Ends,
		Read:   func(m *corev1.ConfigMap) (Target, error) { return Read(cfg.Pool, m.Data) },
		Recall: func(content []byte) (Target, error) { return recall(cfg.Pool, content) },
		Encode: func(t Target) ([]byte, error) { return json.Marshal(remembered{cfg.Pool, t}) },
		Heard: func(ctx context.Context, was, is Target) {
			log := klog.FromContext(ctx)
			if is.IsZero() && !was.IsZero() {
				log.Info("The pool has no coordinator any more", "was", was.Address)
			}
			for slot := range edge.Slot(edge.MaxSlots) {
				if address, before := is.In(slot).Address, was.In(slot).Address; address != before && !is.IsZero() {
					log.Info("The pool's coordinator is known", "slot", slot, "address", address, "was", before)
				}
				if was.elsewhere(is, slot) {
					cfg.Moved(slot, is)
				}
			}
		},
	})}
}

// Run follows the ConfigMap until ctx ends.
func (f *Finder) Run(ctx context.Context) error { return f.notice.Run(ctx) }

// Target returns where the coordinators are, as far as is known.
func (f *Finder) Target() Target { return f.notice.Get() }

// CA returns the PEM bundle that verifies the coordinator's certificate; empty while no coordinator is known.
func (f *Finder) CA() []byte { return []byte(f.Target().CA) }

// In returns the coordinator of a slot, as the Finder knows it.
func (f *Finder) In(slot edge.Slot) Found { return Found{f, slot} }

// Found is one slot's coordinator, as a Finder knows it.
type Found struct {
	finder *Finder
	slot   edge.Slot
}

// Address returns the coordinator's IP:PORT, or ErrNone.
func (f Found) Address() (string, error) {
	if at := f.finder.Target().In(f.slot).Address; at != "" {
		return at, nil
	}
	return "", ErrNone
}

// found records a coordinator that was found on the LAN, if its generation is later than that of the known coordinator in its
// slot. The cloud's next answer replaces the record in any case.
func (f *Finder) found(ctx context.Context, ca string, is Place) (taken bool) {
	return f.notice.Change(ctx, func(known Target) Target {
		was := known.In(is.Generation.Slot)
		if known.CA != ca || was.Address == "" || !is.Generation.Younger(was.Generation) {
			return known
		}
		return known.with(is.Generation.Slot, is)
	})
}
