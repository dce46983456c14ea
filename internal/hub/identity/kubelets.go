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

// renewKubelets replaces kubelet's certificate and key with the hub's when kubelet's is due for renewal. A kubelet behind the
// hub shows a token, so it does not renew its certificate. If the hub is removed, kubelet uses the certificate that it finds.
// Both certificates identify the same node. renewKubelets reports a failure once.
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

// pairFile returns the file that holds both certificate and key of a kubeconfig's user. It returns "" if there is no such file:
// a certificate inside the kubeconfig, or in separate files, is for somebody else to renew.
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

// replace gives a file new content. If path is a symlink, as kubelet makes it, the content goes into a file called name beside
// it, and the link is then changed to that file.
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
