package lab

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Images are archives that machines with containers have on their disks.
type Images struct {
	// All are for all machines. Cloud are further ones for the cloud's machine.
	All   []string `json:"all"`
	Cloud []string `json:"cloud,omitempty"`
}

func (i Images) of(p place) []string {
	if p == inCloud {
		return slices.Concat(i.All, i.Cloud)
	}
	return i.All
}

// BareCloud is the name of the machine of a bare lab that is to become the control plane. Its address is BareAddress.
const BareCloud = cloudMachine

// BareAddress returns the address of BareCloud, which all machines reach.
func BareAddress() string { return four.cloudWAN().String() }

// BareAudit is the directory on BareCloud where Client.CloudLists expects kube-apiserver's audit log. kube-apiserver must write
// the file BareAuditLog, with the policy AuditPolicy and in the mode blocking.
const (
	BareAudit    = "/var/log/kubernetes"
	BareAuditLog = BareAudit + "/" + auditLog
)

// AuditPolicy returns what the lab's own kube-apiserver records.
func AuditPolicy() string { return auditPolicy }

// begin makes the lab's keys and the watcher that follows the cloud. In a bare lab it makes no keys.
func (l *Lab) begin(ctx context.Context) error {
	access := &rest.Config{Host: l.cfg.families().cloudAddress()}
	if !l.cfg.Bare {
		if err := l.writePKI(); err != nil {
			return err
		}
		var err error
		if access, err = l.adminAccess(); err != nil {
			return err
		}
	}
	w, err := newWatcher(ctx, access, l.cfg.Installed)
	l.watching.Store(w)
	return err
}

func (l *Lab) adminAccess() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", filepath.Join(l.pki(), "admin.kubeconfig"))
}

// makeDisks gives each machine of a bare lab an empty disk.
func (l *Lab) makeDisks() error {
	var failed []error
	for name := range l.hosts {
		failed = append(failed, os.MkdirAll(l.disk(name), 0o755))
	}
	return errors.Join(failed...)
}

// follow follows the cloud whose kubeconfig Client.Follow has given, for the life of the lab.
func (l *Lab) follow(life, ctx context.Context) error {
	if !l.cfg.Bare {
		return errors.New("the lab has made its cloud itself")
	}
	access, err := l.adminAccess()
	if err != nil {
		return err
	}
	w, err := newWatcher(life, access, true)
	if err != nil {
		return err
	}
	if err := w.waitServing(ctx, time.Minute); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	l.watching.Store(w)
	return nil
}

// Follow makes a bare lab take a cluster for its cloud. kubeconfig is the one of the cluster's administrator.
func (c *Client) Follow(ctx context.Context, kubeconfig []byte) error {
	keys := filepath.Join(c.dir, "pki")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(keys, "admin.kubeconfig"), kubeconfig, 0o600); err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "cluster", nil, nil)
}
