package kit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/wire"
)

// Cut makes the WAN links of a node, or of pool/NAME, silent from then on.
func (t *T) Cut(target string) (at time.Time) {
	at = time.Now()
	t.Must(t.Lab.Cut(t.Ctx, lab.WAN, target, wire.Drop))
	return at
}

// Heal undoes Cut, and returns when.
func (t *T) Heal(target string) (at time.Time) {
	at = time.Now()
	t.Must(t.Lab.Heal(t.Ctx, lab.WAN, target))
	return at
}

// Shape gives links a shape.
func (t *T) Shape(n lab.Network, target string, shape line.Shape, seed uint64, shared bool) {
	t.Must(t.Lab.Shape(t.Ctx, n, target, lab.LinkShape{Shape: shape, Seed: seed, Shared: shared}))
}

// OnePool is a pool of three nodes, with the lab's quick timing.
var OnePool = lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick}

// HubsAlone has no kubelets: only what the pool shares matters.
var HubsAlone = lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true}

// Joining makes hubs get their certificates by themselves.
func Joining(c lab.Config, life time.Duration) lab.Config {
	c.Bootstrap, c.CertificateLife = true, life
	return c
}

// Unrelayed makes hubs relay for nobody, so that a node that is cut off hears nothing from the cloud.
func Unrelayed(c lab.Config) lab.Config {
	c.HubFlags = append(slices.Clone(c.HubFlags), "--relay=Off")
	return c
}

// ShortLived makes the certificates of coordinators and operators last for a minute: each is replaced after 40 s.
func ShortLived(c lab.Config) lab.Config {
	c.ChartValues = []string{"controller.extraArgs={--coordinator-certificate-life=1m,--operator-certificate-life=1m}"}
	return c
}

// RealKubelets asks for real kubelets: hollow ones can't show what the scenario is about.
func RealKubelets(c lab.Config) lab.Config {
	c.Kubelet = lab.Real
	return c
}

// LabBeside returns the name of a lab beside the scenario's own, and ends that lab with the scenario. gone fails if any of it
// is left.
func (t *T) LabBeside(suffix string) (name string, gone func() error) {
	name = t.Config.Name + "-" + suffix
	dir, err := lab.Dir(name)
	t.Must(err)
	gone = func() error {
		_, err := os.Stat(dir)
		switch {
		case err == nil:
			return fmt.Errorf("the lab %s is still there: %s", name, dir)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	}
	t.Background.Add(1)
	context.AfterFunc(t.Ctx, func() {
		defer t.Background.Done()
		if gone() != nil { // the scenario has failed
			_ = lab.Down(context.WithoutCancel(t.Ctx), name)
		}
	})
	return name, gone
}
