package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// changing are the programs by which the scripts change anything: between two of them a kill makes no difference.
var changing = []string{"chmod", "cp", "ln", "mkdir", "mv", "rm", "rmdir", "sync", "systemctl", "touch", "sleep"}

// reading are the others that they may use.
var reading = []string{
	"basename", "cat", "cksum", "cut", "date", "dirname", "find", "grep", "head", "id", "readlink", "sed", "sh", "sort", "tr",
	"uname",
}

// standIn stands for each of the changing programs: it counts, kills the whole script when its time has come, and is
// systemd where that is wanted. A kubelet has the way that the files had when systemd was last told to read them.
const standIn = `#!/bin/sh
name=${0##*/}
read -r n <"$LAB/count"
n=$((n + 1))
echo $n >"$LAB/count"
if [ "$n" = "$KILL_AT" ]; then kill -9 0; fi
way() { if [ -f "$NODE/etc/systemd/system/kubelet.service.d/20-yurthub.conf" ]; then echo hub; else echo straight; fi; }
case "$name $*" in
systemctl*) echo "$*" >>"$LAB/log" ;;
esac
case "$name $*" in
sleep* | sync*) exit 0 ;;
"systemctl daemon-reload") way >"$LAB/read"; exit 0 ;;
"systemctl restart kubelet.service") PATH=/usr/bin:/bin cp "$LAB/read" "$LAB/kubelet"; exit 0 ;;
"systemctl start yurthub.service" | "systemctl restart yurthub.service")
	if [ ! -f "$NODE/etc/systemd/system/yurthub.service" ]; then exit 5; fi
	echo >"$LAB/hub"
	exit 0
	;;
"systemctl stop yurthub.service") PATH=/usr/bin:/bin rm -f "$LAB/hub"; exit 0 ;;
systemctl*) exit 1 ;;
esac
PATH=/usr/bin:/bin:/usr/sbin:/sbin
exec "$name" "$@"
`

// hubStandIn is a yurthub that is content when it runs as it is said to.
const hubStandIn = `#!/bin/sh
config=
for arg in "$@"; do case $arg in --config=*) config=${arg#--config=} ;; esac; done
if [ "$config" = /dev/stdin ]; then
	case $(cat) in *refused*) echo 'yurthub: /dev/stdin: unknown setting "refused"; see yurthub check --help' ;; esac
	exit 1
fi
if [ "$1" != check ] || [ ! -s "$config" ]; then echo "fail  settings  no settings"; exit 1; fi
case "$*" in
*--before-start*) stage=before-start ;;
*--joined*) stage=joined ;;
*) stage=running ;;
esac
echo "$stage" >>"$LAB/checks"
pod=$NODE/etc/kubernetes/manifests/yurthub.yaml
if [ $stage = before-start ] && { [ -f "$LAB/hub" ] || [ -f "$pod" ]; }; then echo "fail  yurthub  runs already"; exit 1; fi
if [ -f "$LAB/unwell-$stage" ]; then echo "fail  something  is wrong"; exit 1; fi
if [ $stage != before-start ] && [ ! -f "$LAB/hub" ] && [ ! -f "$pod" ]; then exit 1; fi
if [ $stage = joined ] && read -r way <"$LAB/kubelet" && [ "$way" != hub ]; then exit 1; fi
echo "ok    yurthub  runs"
`

const kubeletConf = `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: bm9uZQ==
    server: https://10.0.0.1:6443
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
`

const kubeadmDropin = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/b.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// machine is a node's files as kubeadm leaves them, with stand-ins for systemd and yurthub.
type machine struct {
	t              *testing.T
	root, lab, bin string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), lab: t.TempDir()}
	m.bin = filepath.Join(m.lab, "bin")
	for name, content := range map[string]string{
		"usr/lib/systemd/system/kubelet.service":                     "[Service]\nExecStart=/usr/bin/kubelet\n",
		"usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf":   kubeadmDropin,
		"etc/kubernetes/kubelet.conf":                                kubeletConf,
		"etc/kubernetes/pki/ca.crt":                                  "none\n",
		"etc/kubernetes/manifests/.keep":                             "",
		"etc/systemd/system/multi-user.target.wants/kubelet.service": "a link\n",
		"var/lib/kubelet/config.yaml":                                "staticPodPath: /etc/kubernetes/manifests\n",
		"var/lib/kubelet/kubeadm-flags.env":                          "KUBELET_KUBEADM_ARGS=\"--hostname-override=n1 --v=1\"\n",
		"var/lib/kubelet/pki/kubelet-client-current.pem":             "secret\n",
		"run/systemd/system/.keep":                                   "",
	} {
		m.write(name, content)
	}
	m.script(filepath.Join(m.root, "usr/local/bin/yurthub"), hubStandIn)
	m.script(filepath.Join(m.bin, "step"), standIn)
	for _, name := range changing {
		m.must(os.Symlink("step", filepath.Join(m.bin, name)))
	}
	for _, name := range reading {
		path, err := exec.LookPath(name)
		m.must(err)
		m.must(os.Symlink(path, filepath.Join(m.bin, name)))
	}
	m.must(os.WriteFile(filepath.Join(m.lab, "read"), []byte("straight\n"), 0o600))
	m.must(os.WriteFile(filepath.Join(m.lab, "kubelet"), []byte("straight\n"), 0o600))
	return m
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	m.must(os.WriteFile(path, []byte(content), 0o600))
}

func (m *machine) script(path, content string) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	m.must(os.WriteFile(path, []byte(content), 0o700))
}

func (m *machine) remove(names ...string) {
	m.t.Helper()
	for _, name := range names {
		m.must(os.RemoveAll(filepath.Join(m.root, name)))
	}
}

// unwell makes yurthub's check fail at a stage from now on.
func (m *machine) unwell(stage string) {
	m.t.Helper()
	m.must(os.WriteFile(filepath.Join(m.lab, "unwell-"+stage), nil, 0o600))
}

// result is how a script ended.
type result struct {
	out    string
	killed bool
	failed bool
	steps  int
}

// run runs a script; it is killed at its killAt-th step, if that is not 0.
func (m *machine) run(script string, killAt int, args ...string) result {
	m.t.Helper()
	m.must(os.WriteFile(filepath.Join(m.lab, "count"), []byte("0\n"), 0o600))
	cmd := exec.CommandContext(m.t.Context(), "/bin/sh", append([]string{"./" + script, "--root=" + m.root}, args...)...)
	cmd.Env = []string{"PATH=" + m.bin, "LAB=" + m.lab, "NODE=" + m.root, fmt.Sprintf("KILL_AT=%d", killAt)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := result{out: out.String(), failed: err != nil}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		r.killed = ok && status.Signaled()
	} else {
		m.must(err)
	}
	count, err := os.ReadFile(filepath.Join(m.lab, "count"))
	m.must(err)
	r.steps, _ = strconv.Atoi(strings.TrimSpace(string(count)))
	return r
}

// works runs a script that must succeed.
func (m *machine) works(script string, args ...string) result {
	m.t.Helper()
	r := m.run(script, 0, args...)
	if r.failed {
		m.t.Fatalf("%s %v failed:\n%s", script, args, r.out)
	}
	return r
}

// told is what systemd was told since the last call.
func (m *machine) told() []string {
	m.t.Helper()
	path := filepath.Join(m.lab, "log")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	m.must(err)
	m.must(os.Remove(path))
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// way is how the kubelet that runs goes to the cloud: straight, or by the hub.
func (m *machine) way() string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.lab, "kubelet"))
	m.must(err)
	return strings.TrimSpace(string(content))
}

func (m *machine) hubRuns() bool {
	_, err := os.Stat(filepath.Join(m.lab, "hub"))
	return err == nil
}

// files are all files of the node, with what can be seen of each.
func (m *machine) files() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	m.must(filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			seen += " " + string(content)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			seen += " to " + to
		}
		all[strings.TrimPrefix(path, m.root)] = seen
		return nil
	}))
	return all
}

// same fails unless the node's files are these.
func (m *machine) same(want map[string]string, when string) {
	m.t.Helper()
	got := m.files()
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, found := want[path]; !found {
			m.t.Errorf("%s: %s is there: %.200s", when, path, got[path])
		} else if got[path] != want[path] {
			m.t.Errorf("%s: %s is %.300s\nand not %.300s", when, path, got[path], want[path])
		}
	}
	for path := range want {
		if _, found := got[path]; !found {
			m.t.Errorf("%s: %s is gone", when, path)
		}
	}
}
