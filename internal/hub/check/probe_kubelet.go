package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// probeKubelet finds the node's kubelet and where its kubeconfig leads.
func probeKubelet(ctx context.Context, c Config) func(*Facts) {
	k := Kubelet{Config: File{Path: c.KubeletUses}}
	for _, pid := range processes() {
		argv := commandLine(pid)
		if len(argv) == 0 || filepath.Base(argv[0]) != "kubelet" || !ofThisNode(pid) {
			continue
		}
		k.Running = true
		if k.Config.Path == "" {
			k.Config.Path = flagValue(argv, "kubeconfig")
		}
		k.Rotates = rotates(argv)
		k.Serving = serving(argv, c)
		break
	}
	if k.Config.Path != "" {
		var content []byte
		k.Config, content = readFile(k.Config.Path)
		if k.Config.fine() {
			k.Server, k.Config.Trouble = kubeconfigServer(content)
			k.Unproved = unproved(c.CertDir, k.Config.Path, content)
		}
	}
	status, body, err := fetch(ctx, plainClient(c.Step), c.KubeletHealth)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		k.NoHealth = true // kubelet need not serve its health
	case err != nil:
		k.Health = cause(err)
	case status != http.StatusOK:
		k.Health = fmt.Sprintf("status %d: %s", status, line(string(body)))
	}
	return func(f *Facts) { f.Kubelet = k }
}

// ofThisNode reports whether a process runs outside containers: nodes can be containers, with kubelets of their own.
func ofThisNode(pid string) bool {
	theirs, err := os.Readlink(filepath.Join("/proc", pid, "ns", "pid"))
	if err != nil {
		return false
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && theirs == own
}

// flagValue returns the last value of a flag on a command line, --name=value or --name value.
func flagValue(argv []string, name string) string {
	value := ""
	for i, arg := range argv {
		flag, found := strings.CutPrefix(arg, "--"+name)
		switch {
		case !found:
		case strings.HasPrefix(flag, "="):
			value = flag[1:]
		case flag == "" && i+1 < len(argv):
			value = argv[i+1]
		}
	}
	return value
}

// rotates reports whether a kubelet with this command line asks for client certificates by itself.
func rotates(argv []string) bool {
	if flag := flagValue(argv, "rotate-certificates"); flag != "" {
		return flag == "true"
	}
	var settings struct {
		RotateCertificates bool `json:"rotateCertificates"`
	}
	_, content := readFile(flagValue(argv, "config"))
	return yaml.Unmarshal(content, &settings) == nil && settings.RotateCertificates
}

// Files by which the hub and kubelet know each other, in the directory of the hub's certificates.
const fileLocal, fileToken = "local.crt", "kubelet.token"

// unproved says why kubelet, with this kubeconfig, and the hub would not know each other.
func unproved(dir, path string, content []byte) string {
	config, err := clientcmd.Load(content)
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return "" // it is told elsewhere
	}
	current := config.Contexts[config.CurrentContext]
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return "it names no user"
	}
	for _, of := range []struct {
		what, kept, named string
		data              []byte
	}{
		{"certificate-authority", fileLocal, cluster.CertificateAuthority, cluster.CertificateAuthorityData},
		{"token", fileToken, user.TokenFile, []byte(user.Token)},
	} {
		file, kept := readFile(filepath.Join(dir, of.kept))
		if !file.fine() {
			return fmt.Sprintf("%s: %s", file.Path, reason(file))
		}
		named, trouble := inline(path, of.data, of.named)
		switch {
		case trouble != "":
			return trouble
		case len(named) == 0:
			return "it has no " + of.what
		case !bytes.Equal(bytes.TrimSpace(named), bytes.TrimSpace(kept)):
			return fmt.Sprintf("its %s is not that of %s", of.what, file.Path)
		}
	}
	return ""
}

func kubeconfigServer(content []byte) (server, trouble string) {
	const none = "it is no kubeconfig with a current context" // clientcmd's own words may quote the content
	config, err := clientcmd.Load(content)
	if err != nil {
		return "", none
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return "", none
	}
	return strings.TrimSuffix(line(config.Clusters[current.Cluster].Server), "/"), ""
}
