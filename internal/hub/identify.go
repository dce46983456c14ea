package hub

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/hub/identity"
)

// credentialFiles are the paths of the files that prove who the cloud is, and who the node.
type credentialFiles struct{ ca, cert, key string }

// identify decides where the node's certificate comes from.
func (h *Hub) identify() error {
	cfg := h.cfg
	if !cfg.ownCertificate() {
		h.files = credentialFiles{cfg.CAFile, cfg.CertFile, cfg.KeyFile}
		return nil
	}
	var err error
	h.identity, err = identity.New(identity.Config{
		Node: cfg.Node, Dir: cfg.CertDir, Servers: cfg.ServerAddresses, CAFile: cfg.CAFile,
		BootstrapFile: cfg.Identity.BootstrapFile, CACertHashes: cfg.Identity.CACertHashes,
		UnsafeSkipCAVerification: cfg.Identity.UnsafeSkipCAVerification,
		KubeletKubeconfig:        cfg.Identity.KubeletKubeconfig, KubeletAsIs: cfg.Identity.KubeletAsIs,
	})
	if err != nil {
		return fmt.Errorf("the node's own certificate: %w", err)
	}
	h.files.ca, h.files.cert, h.files.key = h.identity.Files()
	return h.measureCertificates()
}

// measureCertificates has metrics say when the certificates end, for alerts.
func (h *Hub) measureCertificates() error {
	for name, state := range map[string]func() identity.State{
		"client":  func() identity.State { return h.identity.Status().Client },
		"serving": func() identity.State { return h.identity.Status().Serving },
	} {
		if err := h.metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "yurthub_certificate_expiration_timestamp_seconds",
			Help:        "When a certificate that the hub got by itself ends, in Unix time; 0: there is none.",
			ConstLabels: prometheus.Labels{"certificate": name},
		}, func() float64 {
			if end := state().NotAfter; !end.IsZero() {
				return float64(end.Unix())
			}
			return 0
		})); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}
