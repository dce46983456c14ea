package join

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/hub/bypass"
)

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

// machine is a node's files as kubeadm leaves them, with fakes of systemd and yurthub. A kubelet uses the files as they were
// when systemd last read them.
type machine struct {
	t    *testing.T
	root string

	steps, killAt int
	log           []string // what systemd was told
	read, kubelet string   // the way of the files as last read, and of the kubelet that runs
	hub           bool     // runs by systemd
	upgrades      bool     // systemd looks for what is delivered
	ill           map[string]bool
	checks        map[string]int // how often each stage was checked
	wellAfter     int            // checks that fail before one succeeds
	broken        string         // what systemctl is told in vain
	during        func(step string)
	programs      []bypass.Program // of Pods
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), read: "straight", kubelet: "straight", ill: map[string]bool{}, checks: map[string]int{},
	}
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
	m.write("usr/local/bin/yurthub", "a program")
	m.must(os.Chmod(filepath.Join(m.root, "usr/local/bin/yurthub"), 0o755))
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

func (m *machine) remove(names ...string) {
	m.t.Helper()
	for _, name := range names {
		m.must(os.RemoveAll(filepath.Join(m.root, name)))
	}
}

func (m *machine) there(path string) bool {
	_, err := os.Stat(filepath.Join(m.root, path))
	return err == nil
}

// unwell makes yurthub's check fail at a stage from now on.
func (m *machine) unwell(stage string) { m.ill[stage] = true }

// step counts, and kills the run when its time has come.
func (m *machine) step(what string) {
	if m.during != nil {
		m.during(what)
	}
	if m.steps++; m.steps == m.killAt {
		panic(killed{})
	}
}

func (m *machine) Available() bool { return true }
func (m *machine) Sync()           {}

// Programs are the agents that run. One that is told to end runs again, told what kubelet sees.
func (m *machine) Programs() []bypass.Program { return slices.Clone(m.programs) }

// End is how a program of a container ends: kubelet starts it anew, with what it sees itself.
func (m *machine) End(_ context.Context, pid int) error {
	m.log = append(m.log, "end "+strconv.Itoa(pid))
	for i := range m.programs {
		if p := &m.programs[i]; p.PID == pid {
			p.PID += 100
			if p.Told = cloudService; m.kubelet == "hub" && m.there(fileAddress) {
				p.Told = atHub
			}
		}
	}
	return nil
}

// Where Pods are told that the API server is.
var cloudService, atHub = netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("10.0.0.7:10268")

// Control is systemd.
func (m *machine) Control(_ context.Context, args ...string) error {
	told := strings.Join(args, " ")
	m.log = append(m.log, told)
	if told == m.broken {
		return errors.New("it does not")
	}
	switch told {
	case "daemon-reload":
		m.read = "straight"
		if m.there(fileDropin) {
			m.read = "hub"
		}
	case "restart kubelet.service":
		m.kubelet = m.read
	case "start yurthub.service", "restart yurthub.service":
		if !m.there(fileUnit) {
			return errors.New("there is no yurthub.service")
		}
		m.hub = true
	case "stop yurthub.service":
		m.hub = false
	case "restart yurthub-upgrade.path", "stop yurthub-upgrade.path", "stop yurthub-upgrade.service":
		m.upgrades = strings.HasPrefix(told, "restart")
	default:
		return errors.New("unknown to this systemd: " + told)
	}
	return nil
}

// Check is a yurthub that is content when it runs as it is said to.
func (m *machine) Check(_ context.Context, binary, stdin string, args ...string) (string, error) {
	stage := "running"
	switch {
	case slices.Contains(args, "--config=/dev/stdin"):
		if strings.Contains(stdin, "refused") {
			return "yurthub: /dev/stdin: unknown setting \"refused\"; see yurthub check --help\n", ErrNotWell
		}
		return "fail  cloud  has not been asked\n", ErrNotWell
	case binary != m.root+"/usr/local/bin/yurthub" || args[0] != "--config="+m.root+fileConfig || !m.there(fileConfig):
		return "fail  settings  no settings\n", ErrNotWell
	case slices.Contains(args, "--before-start"):
		stage = "before-start"
	case slices.Contains(args, "--joined"):
		stage = "joined"
	case slices.Contains(args, "--agents"):
		stage = "agents"
	}
	m.checks[stage]++
	switch {
	case m.ill[stage] || m.checks[stage] <= m.wellAfter:
		return "fail  something  is wrong\n", ErrNotWell
	case m.hub == (stage == "before-start"), stage == "joined" && m.kubelet != "hub":
		return "fail  yurthub  runs, or does not\n", ErrNotWell
	}
	return "ok    yurthub  runs\n", nil
}

// result is how a run ended.
type result struct {
	out    string
	killed bool
	failed bool
	steps  int
}

// run runs a command as the program does; it is killed at its killAt-th step, if that is not 0.
func (m *machine) run(name string, killAt int, args ...string) result {
	m.t.Helper()
	return m.runUntil(m.t.Context(), name, killAt, args...)
}

func (m *machine) runUntil(ctx context.Context, name string, killAt int, args ...string) (r result) {
	m.t.Helper()
	m.steps, m.killAt = 0, killAt
	var out bytes.Buffer
	defer func() {
		r.out, r.steps = out.String(), m.steps
		if end := recover(); end != nil {
			if _, ok := end.(killed); !ok {
				panic(end)
			}
			r.killed, r.failed = true, true
		}
	}()
	if err := m.command(ctx, name, args, &out); err != nil {
		out.WriteString(err.Error())
		r.failed = true
	}
	return r
}

func (m *machine) command(ctx context.Context, name string, args []string, out *bytes.Buffer) error {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(out)
	args = append([]string{"--root=" + m.root}, args...)
	if name == "reset" {
		var cfg Removal
		cfg.AddFlags(flags)
		if err := flags.Parse(args); err != nil {
			return err
		}
		r := &remover{newHand(ctx, cfg.Where, m, out), cfg.KeepData}
		r.before = m.step
		r.reset()
		return r.err
	}
	var cfg Config
	cfg.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	j := newJoiner(ctx, cfg, m, Terminal{In: strings.NewReader(secret), Out: out})
	j.before = m.step
	return j.join()
}

// works runs a command that must succeed.
func (m *machine) works(name string, args ...string) result {
	m.t.Helper()
	r := m.run(name, 0, args...)
	if r.failed {
		m.t.Fatalf("%s %v failed:\n%s", name, args, r.out)
	}
	return r
}

// told is what systemd was told since the last call.
func (m *machine) told() []string {
	told := m.log
	m.log = nil
	return told
}

// way is how the kubelet that runs goes to the cloud: straight, or by the hub.
func (m *machine) way() string { return m.kubelet }

func (m *machine) hubRuns() bool { return m.hub }

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
