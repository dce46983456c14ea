package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// renewKubelets copies the hub's client certificate and key into kubelet's file when kubelet's certificate is due for renewal.
// Both certificates are for the same node. A kubelet behind the hub does not renew its certificate, but needs it again if the hub
// is removed. A failure is logged once.
func (m *Manager) renewKubelets(ctx context.Context) {
	if m.cfg.KubeletKubeconfig == "" {
		return
	}
	renewed, err := m.giveKubelet()
	said := ""
	if err != nil {
		said = err.Error()
	}
	before := m.kubeletsTrouble
	m.kubeletsTrouble = said
	switch logger := klog.FromContext(ctx); {
	case renewed:
		logger.Info("Kubelet's certificate is renewed", "notAfter", m.client.state().NotAfter)
	case said != "" && said != before:
		logger.Error(nil, "Cannot renew kubelet's certificate", "problem", said)
	}
}

// giveKubelet reports whether it has written the file.
func (m *Manager) giveKubelet() (bool, error) {
	own, now := m.client.pair.Get(), m.cfg.Ends.Wall()
	if own == nil || !now.Before(own.Leaf.NotAfter) {
		return false, nil
	}
	path, err := pairFile(m.cfg.KubeletKubeconfig)
	if err != nil || path == "" {
		return false, err
	}
	kubelets, err := m.kubelet()
	if err != nil {
		return false, err // it may be another node's
	}
	due := m.client.wanted.lacking(kubelets.pair, now) != "" || m.early(kubelets.pair, now) != "" && m.early(own, now) == ""
	if !due || !own.Leaf.NotAfter.After(kubelets.pair.Leaf.NotAfter) {
		return false, nil
	}
	content, err := ReadKeyFile(m.disk.File(m.client.filePair()))
	if err != nil {
		return false, err
	}
	return true, replace(path, content, "kubelet-client-"+now.UTC().Format("2006-01-02-15-04-05")+".pem")
}

// pairFile returns the file that holds both certificate and key of a kubeconfig's user; "" means that there is none.
func pairFile(kubeconfig string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return "", fmt.Errorf("%s is no kubeconfig", kubeconfig)
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if user == nil || user.ClientCertificate == "" || user.ClientCertificate != user.ClientKey {
		return "", nil
	}
	if !filepath.IsAbs(user.ClientKey) {
		return filepath.Join(filepath.Dir(kubeconfig), user.ClientKey), nil
	}
	return user.ClientKey, nil
}

// replace gives the file at path new content. If path is a symlink, as kubelet makes it, replace writes the content to a file of
// the given name beside it, and points the link to that file.
func replace(path string, content []byte, name string) error {
	dir := KeyDir{Path: filepath.Dir(path)}
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return errors.Join(err, dir.Write(filepath.Base(path), content))
	}
	if err := dir.Write(name, content); err != nil {
		return err
	}
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(dir.File(name), next); err != nil {
		return err
	}
	return os.Rename(next, path)
}
