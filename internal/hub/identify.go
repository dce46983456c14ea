package hub

import (
	"fmt"

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
	return nil
}
