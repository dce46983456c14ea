package join

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// Places on a node.
const (
	dirEtc         = "/etc/yurthub"
	dirNotes       = dirEtc + "/install"
	fileConfig     = dirEtc + "/config.yaml"
	fileKubeconfig = dirEtc + "/kubelet.conf"
	fileToken      = dirEtc + "/bootstrap-token"
	dirData        = "/var/lib/yurthub"
	fileUnit       = "/etc/systemd/system/yurthub.service"
	linkWanted     = "/etc/systemd/system/multi-user.target.wants/yurthub.service"
	fileDropin     = "/etc/systemd/system/kubelet.service.d/" + nameDropin
	nameDropin     = "20-yurthub.conf"

	fileKubeadm       = "/etc/kubernetes/kubelet.conf"
	fileKubeletConfig = "/var/lib/kubelet/config.yaml"
	dirKubeletPKI     = "/var/lib/kubelet/pki"
	dirSystemd        = "/run/systemd/system"
)

// mark is the first line of every file of ours.
const mark = "# Made by yurthub's join; its reset removes it."

// unitDirs are where systemd looks for units.
var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system",
}

// argumentFiles have arguments of kubelet; the first that names the node counts.
var argumentFiles = []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env"}

// maxRead bounds what is read of a file, in bytes. The largest is kubelet's kubeconfig.
const maxRead = 1 << 20

// facts are what there is on a node, before anything is changed.
type facts struct {
	files   map[string]string // content by path
	units   []string          // of these, kubelet's units and drop-ins
	systemd bool              // runs, and can be told
	// binary is where the program really is; "" if there is none.
	binary string
	host   string
	joined bool
}

func (f *facts) has(path string) bool { _, ok := f.files[path]; return ok }

// ours reports whether a file is there and was made by Join.
func (f *facts) ours(path string) bool { return isOurs(f.files[path]) }

func isOurs(content string) bool { first, _, _ := strings.Cut(content, "\n"); return first == mark }

// readFacts reads what a decision needs.
func readFacts(c *Config, system System) (*facts, error) {
	root := c.root()
	f := &facts{files: map[string]string{}, systemd: systemdRuns(root, system)}
	for _, dir := range unitDirs {
		unit := dir + "/kubelet.service"
		f.units = append(f.units, unit)
		found, err := filepath.Glob(root + unit + ".d/*.conf")
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			f.units = append(f.units, strings.TrimPrefix(path, root))
		}
	}
	paths := append([]string{
		fileKubeadm, fileKubeletConfig, fileConfig, fileToken, fileProxy, fileUnit, fileDropin, FileKeys,
		"/usr/lib/systemd/system/yurthub.service",
		"/lib/systemd/system/yurthub.service",
	}, argumentFiles...)
	for _, path := range append(paths, f.units...) {
		if err := f.read(root, path); err != nil {
			return nil, err
		}
	}
	for _, path := range append(environmentFiles(f), f.otherPods()...) {
		if err := f.read(root, path); err != nil {
			return nil, err
		}
	}
	_, err := os.Stat(root + dirNotes + "/" + noteJoined)
	f.joined = err == nil
	if f.host, err = os.Hostname(); err != nil {
		return nil, err
	}
	return f, f.findBinary(root, c.Binary)
}

// systemdRuns reports whether there is a systemd to tell.
func systemdRuns(root string, system System) bool {
	info, err := os.Stat(root + dirSystemd)
	return err == nil && info.IsDir() && system.Available()
}

// read takes down a file, if it is there. A directory in its place has no content.
func (f *facts) read(root, path string) error {
	content, err := readText(root + path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, syscall.EISDIR) {
		return err
	}
	f.files[path] = content
	return nil
}

func readText(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return readAll(file, path)
}

func readAll(from io.Reader, name string) (string, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxRead+1))
	if err == nil && len(content) > maxRead {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxRead)
	}
	return string(content), err
}

// findBinary follows links to where the program is. A link in an image leads to a place in the image.
func (f *facts) findBinary(root, binary string) error {
	top, err := filepath.EvalSymlinks(root + "/")
	if err != nil {
		return fmt.Errorf("--root: %w", err)
	}
	path, err := filepath.EvalSymlinks(root + binary)
	if err != nil {
		return nil //nolint:nilerr // it is not there, which decide says better
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		f.binary = strings.TrimPrefix(path, strings.TrimSuffix(top, "/"))
	}
	return nil
}

var manifestsLine = regexp.MustCompile(`(?m)^staticPodPath: *"?([^"\n]*?)"? *$`)

// manifests returns the directory of static Pods, by kubelet's settings.
func manifests(kubeletConfig string) string {
	if found := manifestsLine.FindStringSubmatch(kubeletConfig); found != nil && found[1] != "" {
		return strings.TrimSuffix(found[1], "/")
	}
	return "/etc/kubernetes/manifests"
}

// otherPods are where another project's installers put its hub.
func (f *facts) otherPods() []string {
	dir := manifests(f.files[fileKubeletConfig])
	return []string{dir + "/yurthub.yaml", dir + "/yurt-hub.yaml"}
}

// token returns the token of --token-file; "" if the flag is not set.
func (c *Config) token(in io.Reader) (string, error) {
	var content string
	var err error
	switch c.TokenFile {
	case "":
		return "", nil
	case "-":
		content, err = readAll(in, "standard input")
	default:
		content, err = readText(c.TokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	content = strings.TrimSpace(content)
	if !tokenText.MatchString(content) {
		return "", fmt.Errorf("--token-file %s: want a token as kubeadm token create prints it", c.TokenFile)
	}
	return content, nil
}

var tokenText = regexp.MustCompile(`^[a-z0-9.]+$`)
