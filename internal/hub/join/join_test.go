package join

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
)

const (
	secret = "abcdef.0123456789abcdef"
	aHash  = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// ways are the kinds of nodes, and how each is joined. The first is killed at every step, and the others, which differ little
// from it, at every stride-th step.
var ways = []struct {
	name    string
	stride  int
	prepare func(*machine)
	flags   []string
}{
	{"kubeadm", 1, func(*machine) {}, []string{"--nodepool-name=p1", "--coordinator-server-addr=https://10.0.0.7:10270"}},
	{"kubeadm of old", 5, func(m *machine) {
		m.remove("usr/lib/systemd/system/kubelet.service.d")
		m.write("etc/systemd/system/kubelet.service.d/10-kubeadm.conf", kubeadmDropin)
	}, nil},
	{"with a token", 3, func(m *machine) {
		m.remove("etc/kubernetes", "var/lib/kubelet/pki")
		m.write("token", secret+"\n")
	}, []string{"--server-addr=https://10.0.0.1:6443,https://[fd00::1]:6443", "--discovery-token-ca-cert-hash=" + aHash}},
	{"with upgrades", 2, func(m *machine) { m.write("cosign.pub", releaseKey) }, nil},
}

// each runs a test for each kind of node.
func each(t *testing.T, test func(t *testing.T, fresh func(*testing.T) *machine, flags []string)) {
	t.Helper()
	eachInStrides(t, func(t *testing.T, fresh func(*testing.T) *machine, flags []string, _ int) { test(t, fresh, flags) })
}

func eachInStrides(t *testing.T, test func(t *testing.T, fresh func(*testing.T) *machine, flags []string, stride int)) {
	t.Helper()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T) *machine {
				t.Helper()
				m := newMachine(t)
				way.prepare(m)
				return m
			}, append([]string{"--start"}, way.flags...), way.stride)
		})
	}
}

// flagsFor adds what depends on where the node's files are.
func flagsFor(m *machine, flags []string) []string {
	for file, flag := range map[string]string{"token": "--token-file=", "cosign.pub": "--release-key="} {
		if _, err := os.Stat(filepath.Join(m.root, file)); err == nil {
			return append(slices.Clone(flags), flag+filepath.Join(m.root, file))
		}
	}
	return flags
}

func count(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

const restartKubelet = "restart kubelet.service"

func TestJoinAndReset(t *testing.T) {
	each(t, func(t *testing.T, fresh func(*testing.T) *machine, flags []string) {
		m := fresh(t)
		flags = flagsFor(m, flags)
		before := m.files()
		if r := m.works("join", flags...); strings.Contains(r.out, secret) {
			t.Errorf("the token is told:\n%s", r.out)
		}
		if told := m.told(); m.way() != "hub" || count(told, restartKubelet) != 1 {
			t.Errorf("kubelet goes %s, and systemd was told %q", m.way(), told)
		}
		joined := m.files()
		for path, seen := range before {
			if joined[path] != seen {
				t.Errorf("join has changed %s", path)
			}
		}
		for path, seen := range joined {
			if strings.Contains(seen, secret) && path != "/token" {
				t.Errorf("the token is in %s", path)
			}
		}
		settingsAreAHubs(t, filepath.Join(m.root, "etc/yurthub/config.yaml"))
		kubeletProvesItself(t, m)

		m.works("join", flags...)
		m.same(joined, "joined twice")
		if told := m.told(); count(told, restartKubelet)+count(told, "restart yurthub.service") != 0 {
			t.Errorf("joined again with nothing new, and systemd was told %q", told)
		}

		m.write("var/lib/yurthub/cache/store.log", "what the hub knows")
		m.write("var/lib/yurthub/cache.key", "the key for what is secret of it")
		m.works("reset", "--start")
		m.same(before, "reset")
		if told := m.told(); m.way() != "straight" || m.hubRuns() || count(told, restartKubelet) != 1 {
			t.Errorf("reset: kubelet goes %s, hub %v, and systemd was told %q", m.way(), m.hubRuns(), told)
		}
		m.works("reset", "--start")
		m.same(before, "reset twice")
		if told := m.told(); len(told) != 0 {
			t.Errorf("reset with nothing there, and systemd was told %q", told)
		}
	})
}

// settingsAreAHubs reads a file of settings as yurthub does.
func settingsAreAHubs(t *testing.T, path string) {
	t.Helper()
	var cfg config.Config
	flags := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	if err := flagfile.Parse(flags, []string{"--config=" + path}, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.Node != "n1" || len(cfg.ServerAddresses) == 0 || cfg.ServerAddresses[0] != "https://10.0.0.1:6443" {
		t.Errorf("%+v", cfg)
	}
}

// kubeletProvesItself looks at whom kubelet's kubeconfig has it believe, and what it shows.
func kubeletProvesItself(t *testing.T, m *machine) {
	t.Helper()
	raw, err := clientcmd.LoadFromFile(filepath.Join(m.root, "etc/yurthub/kubelet.conf"))
	m.must(err)
	cluster, user := raw.Clusters["yurthub"], raw.AuthInfos["kubelet"]
	const dir = "/var/lib/yurthub/pki/"
	if cluster == nil || user == nil || cluster.Server != "https://127.0.0.1:10261" || cluster.InsecureSkipTLSVerify ||
		cluster.CertificateAuthority != dir+front.FileCertificate || user.TokenFile != dir+front.FileToken {
		t.Errorf("kubelet is told %+v, %+v", cluster, user)
	}
	dropin := m.files()["/etc/systemd/system/kubelet.service.d/20-yurthub.conf"]
	for _, want := range []string{"\nAfter=yurthub.service\n", " --rotate-certificates=false\"\n"} {
		if !strings.Contains(dropin, want) {
			t.Errorf("kubelet's drop-in has no %q:\n%s", want, dropin)
		}
	}
}

// TestWait: a hub that takes its time is waited for, and kubelet told no sooner.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.checks["before-start"], m.checks["joined"], m.wellAfter = 9, 9, 9
		start := time.Now()
		m.during = func(step string) {
			if step == "systemctl "+restartKubelet && m.checks["running"] < 10 {
				t.Errorf("kubelet is told after %d checks", m.checks["running"])
			}
		}
		m.works("join", "--start", "--wait=30")
		if waited := time.Since(start); waited != 9*pollPause {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestSignal: whoever ends join has what was done taken back, at whichever step.
func TestSignal(t *testing.T) {
	steps := newMachine(t).works("join", "--start").steps
	for at := 1; at <= steps; at += 2 {
		m := newMachine(t)
		before := m.files()
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		m.during = func(string) {
			if n++; n == at {
				stop()
			}
		}
		r := m.runUntil(ctx, "join", 0, "--start")
		stop()
		if at == steps && !r.failed { // it was the last one
			break
		}
		m.same(before, "ended by a signal")
		if !r.failed || m.way() != "straight" || m.hubRuns() || t.Failed() {
			t.Fatalf("step %d: kubelet goes %s, hub %v, and join says:\n%s", at, m.way(), m.hubRuns(), r.out)
		}
	}
}

// TestSystemdRefuses: a unit that systemd does not start is taken back, and kubelet has a way all the time.
func TestSystemdRefuses(t *testing.T) {
	m := newMachine(t)
	before := m.files()
	m.broken = "restart yurthub.service"
	if r := m.run("join", 0, "--start"); !r.failed || !strings.Contains(r.out, "undoing") {
		t.Errorf("join says:\n%s", r.out)
	}
	m.same(before, "refused")

	m.broken = ""
	m.works("join", "--start")
	joined := m.files()
	m.broken = "restart yurthub.service"
	r := m.run("join", 0, "--start", "--set=port=10300")
	if !r.failed || !strings.Contains(r.out, "not everything could be undone") {
		t.Errorf("join says:\n%s", r.out)
	}
	m.same(joined, "the hub could not be started again, but its files are back")
}

// TestInterruptedJoin kills join at every step: run again it arrives where an undisturbed one does, and reset leads back.
func TestInterruptedJoin(t *testing.T) {
	eachInStrides(t, func(t *testing.T, fresh func(*testing.T) *machine, flags []string, stride int) {
		m := fresh(t)
		before := m.files()
		steps := m.works("join", flagsFor(m, flags)...).steps
		joined := m.files()
		if steps < 15 {
			t.Fatalf("join takes %d steps; something is wrong with this test", steps)
		}
		for n := 1; n <= steps; n += stride {
			m := fresh(t)
			args := flagsFor(m, flags)
			if r := m.run("join", n, args...); !r.killed {
				t.Fatalf("not killed at step %d of %d:\n%s", n, steps, r.out)
			}
			if n%2 == 0 { // half of them give up
				m.works("reset", "--start")
				m.same(before, "reset after a join that ended at step")
				if m.way() != "straight" || m.hubRuns() {
					t.Errorf("step %d: kubelet goes %s, hub %v", n, m.way(), m.hubRuns())
				}
				continue
			}
			m.works("join", args...)
			m.same(joined, "joined after a join that ended")
			if m.way() != "hub" {
				t.Errorf("step %d: kubelet goes %s", n, m.way())
			}
			if t.Failed() {
				t.Fatalf("killed at step %d", n)
			}
		}
	})
}

// TestInterruptedReset kills reset at every step and runs it again.
func TestInterruptedReset(t *testing.T) {
	eachInStrides(t, func(t *testing.T, fresh func(*testing.T) *machine, flags []string, stride int) {
		for n, steps := 1, 1; n <= steps; n += stride {
			m := fresh(t)
			before := m.files()
			m.works("join", flagsFor(m, flags)...)
			m.write("var/lib/yurthub/cache/store.log", "what the hub knows")
			r := m.run("reset", n, "--start")
			if r.killed {
				steps = n + stride
				m.works("reset", "--start")
			}
			m.same(before, "reset after a reset that ended")
			if m.way() != "straight" || m.hubRuns() || t.Failed() {
				t.Fatalf("killed at step %d: kubelet goes %s, hub %v", n, m.way(), m.hubRuns())
			}
			if !r.killed && n < 8 {
				t.Fatalf("reset takes %d steps; something is wrong with this test", n)
			}
		}
	})
}

// TestRollback: what does not work is taken back, and kubelet is left alone if it need not know.
func TestRollback(t *testing.T) {
	for stage, restarts := range map[string]int{"before-start": 0, "running": 0, "joined": 2} {
		t.Run(stage, func(t *testing.T) {
			m := newMachine(t)
			before := m.files()
			m.unwell(stage)
			r := m.run("join", 0, "--start", "--wait=0")
			if !r.failed || !strings.Contains(r.out, "is wrong") {
				t.Errorf("failed %v, and says:\n%s", r.failed, r.out)
			}
			m.same(before, "rolled back")
			told := m.told()
			if m.way() != "straight" || m.hubRuns() || count(told, restartKubelet) != restarts {
				t.Errorf("kubelet goes %s, hub %v, and systemd was told %q", m.way(), m.hubRuns(), told)
			}
		})
	}
}

// TestChangeRolledBack: settings that do not work give way to those that did, also when that was interrupted.
func TestChangeRolledBack(t *testing.T) {
	m := newMachine(t)
	m.works("join", "--start")
	joined := m.files()
	m.told()
	m.unwell("running")
	for _, killAt := range []int{0, 6} {
		if r := m.run("join", killAt, "--start", "--wait=0", "--set=port=10300", "--set", "disk-cache-size=1"); !r.failed {
			t.Errorf("join works:\n%s", r.out)
		}
	}
	if r := m.run("join", 0, "--start", "--wait=0", "--set=port=10301"); !strings.Contains(r.out, "going back") {
		t.Errorf("join says:\n%s", r.out)
	}
	m.same(joined, "rolled back")
	if !m.hubRuns() || m.way() != "hub" {
		t.Errorf("kubelet goes %s, hub %v", m.way(), m.hubRuns())
	}
}

// TestGoingBackEmptiesNothing: a former file that can't be read leaves the changed one, and is not removed.
func TestGoingBackEmptiesNothing(t *testing.T) {
	m := newMachine(t)
	m.works("join", "--start")
	m.unwell("running")
	former := strings.Repeat("# too large to be read\n", maxRead/20)
	m.during = func(step string) {
		if strings.HasSuffix(step, "restart yurthub.service") {
			m.write(dirFormer+"/config.yaml", former)
		}
	}
	r := m.run("join", 0, "--start", "--wait=0", "--set=port=10300")
	if !r.failed || !strings.Contains(r.out, "not everything could be undone") {
		t.Errorf("join says:\n%s", r.out)
	}
	now := m.files()
	if !strings.Contains(now[fileConfig], "port: \"10300\"") || !strings.HasSuffix(now[dirFormer+"/config.yaml"], former) {
		t.Errorf("the settings are now %.200q; of the former ones there are %d bytes", now[fileConfig],
			len(now[dirFormer+"/config.yaml"]))
	}
}

// TestWholeOrNothing: what could not be written does not take a file's place, not even on the way back.
func TestWholeOrNothing(t *testing.T) {
	m := newMachine(t)
	m.write("etc/.x.new/in-the-way", "")
	h := newHand(t.Context(), Where{Root: m.root}, m, io.Discard)
	h.anyway = true
	h.write("/etc/x", "content", 0o600)
	if h.err == nil || m.there("etc/x") {
		t.Errorf("it was written: %v", h.err)
	}
}

func TestChange(t *testing.T) {
	m := newMachine(t)
	m.works("join", "--start")
	m.told()
	m.works("join", "--start", "--set", "cache-agents=kubelet,coredns")
	if told := m.told(); count(told, "restart yurthub.service") != 1 || count(told, restartKubelet) != 0 {
		t.Errorf("a setting of the hub's has changed, and systemd was told %q", told)
	}
	m.works("join", "--start", "--set", "port=10300")
	if told := m.told(); count(told, "restart yurthub.service") != 1 || count(told, restartKubelet) != 1 {
		t.Errorf("the port has changed, and systemd was told %q", told)
	}
	if seen := m.files()["/etc/yurthub/kubelet.conf"]; !strings.Contains(seen, "https://127.0.0.1:10300") {
		t.Errorf("kubelet is told %s", seen)
	}
	for path := range m.files() {
		if strings.Contains(path, "former") || strings.HasSuffix(path, ".new") {
			t.Errorf("%s is left", path)
		}
	}
}

func TestRefusals(t *testing.T) {
	const others = "[Service]\nExecStart=/usr/local/bin/yurthub\n"
	for _, tt := range []struct {
		name    string
		prepare func(*machine)
		flags   []string
		say     string
	}{
		{"no systemd", func(m *machine) { m.remove("run") }, nil, "systemd does not run"},
		{"no kubelet", func(m *machine) { m.remove("usr/lib/systemd/system") }, nil, "no kubelet.service"},
		{"kubelet not by kubeadm", func(m *machine) {
			m.remove("usr/lib/systemd/system/kubelet.service.d")
		}, nil, "KUBELET_KUBECONFIG_ARGS"},
		{"kubelet without settings", func(m *machine) { m.remove("var/lib/kubelet/config.yaml") }, nil, "kubeadm join first"},
		{"no yurthub", func(m *machine) { m.remove("usr/local/bin/yurthub") }, nil, "no yurthub at"},
		{"yurthub where its service sees nothing", func(m *machine) {
			m.must(os.MkdirAll(filepath.Join(m.root, "home/me"), 0o755))
			path := filepath.Join(m.root, "usr/local/bin/yurthub")
			m.must(os.Rename(path, filepath.Join(m.root, "home/me/yurthub")))
			m.must(os.Symlink("../../../home/me/yurthub", path))
		}, nil, "neither home directories"},
		{"another unit", func(m *machine) { m.write("etc/systemd/system/yurthub.service", others) }, nil, "another yurthub"},
		{"another Pod", func(m *machine) { m.write("etc/kubernetes/manifests/yurthub.yaml", "kind: Pod\n") }, nil,
			"another yurthub"},
		{"OpenYurt's Pod", func(m *machine) { m.write("etc/kubernetes/manifests/yurt-hub.yaml", "kind: Pod\n") }, nil,
			"another yurthub"},
		{"another way to a hub", func(m *machine) {
			m.write("etc/systemd/system/kubelet.service.d/15-x.conf", "--server=http://127.0.0.1:10261\n")
		}, nil, "another hub"},
		{"kubelet.conf of a hub", func(m *machine) {
			m.write("etc/kubernetes/kubelet.conf", strings.ReplaceAll(kubeletConf, "https://10.0.0.1:6443",
				"http://127.0.0.1:10261"))
		}, nil, "hub already"},
		{"kubelet.conf of a hub that asks who it is", func(m *machine) {
			m.write("etc/kubernetes/kubelet.conf", strings.ReplaceAll(kubeletConf, "https://10.0.0.1:6443",
				"https://127.0.0.1:10261"))
		}, nil, "hub already"},
		{"rotation by arguments", func(m *machine) {
			m.write("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--rotate-certificates\n")
		}, nil, "/etc/default/kubelet sets --rotate-certificates"},
		{"a later drop-in", func(m *machine) {
			m.write("etc/systemd/system/kubelet.service.d/30-x.conf", kubeadmDropin)
		}, nil, "30-x.conf comes after"},
		{"kubeconfig by arguments", func(m *machine) {
			m.write("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--kubeconfig=/x\n")
		}, nil, "/etc/default/kubelet sets --kubeconfig"},
		{"other name", nil, []string{"--node-name=n2"}, "--hostname-override is n1"},
		{"settings of others", func(m *machine) { m.write("etc/yurthub/config.yaml", "node-name: n1\n") }, nil,
			"not made by join"},
		{"several servers", func(m *machine) {
			m.write("etc/kubernetes/kubelet.conf", kubeletConf+"    server: https://10.0.0.2:6443\n")
		}, nil, "several servers"},
		{"nothing to prove it with", func(m *machine) { m.remove("etc/kubernetes") },
			[]string{"--server-addr=https://c:1"}, "--token-file"},
		{"nothing to know the cloud by", func(m *machine) {
			m.remove("etc/kubernetes")
			m.write("token", secret)
		}, []string{"--server-addr=https://c:1", "--token-file=/dev/null"}, "--discovery-token-ca-cert-hash"},
		{"coordinator of no pool", nil, []string{"--coordinator-server-addr=https://c:1"}, "--nodepool-name"},
		{"a value that means something else", nil, []string{"--nodepool-name=p\"1"}, "only letters"},
		{"a setting that means something else", nil, []string{"--set=cache-agents=a\nb: c"}, "only letters"},
		{"a setting that join decides", nil, []string{"--set=cert-file=/x"}, "join decides"},
		{"a certificate of somebody else's", nil, []string{"--set=cert-file=/x"}, "join decides"},
		{"a setting with its own flag", nil, []string{"--set=node-name=x"}, "flag for it"},
		{"a setting that yurthub does not know", nil, []string{"--set=refused=1"}, "refuses these settings: unknown setting"},
		{"no value", nil, []string{"--node-name"}, "needs an argument"},
		{"unknown flag", nil, []string{"--nod-name=x"}, "unknown flag"},
		{"bad time", nil, []string{"--wait=soon"}, "number of seconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if tt.prepare != nil {
				tt.prepare(m)
			}
			before := m.files()
			r := m.run("join", 0, append([]string{"--start"}, tt.flags...)...)
			if !r.failed || !strings.Contains(r.out, tt.say) {
				t.Errorf("failed %v, want %q, and says:\n%s", r.failed, tt.say, r.out)
			}
			m.same(before, "refused")
			if told := m.told(); len(told) != 0 {
				t.Errorf("systemd was told %q", told)
			}
		})
	}
}

// TestOtherKubelets: where something else starts kubelet, the refusal names the page that says what works where.
func TestOtherKubelets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../../..", pageCompatibility))
	if err != nil || !strings.Contains(string(text), "\n## Distributions\n") {
		t.Fatalf("the page has no section on distributions: %v", err)
	}
	for name, prepare := range map[string]func(*machine){
		"no systemd":              func(m *machine) { m.remove("run") },
		"no unit":                 func(m *machine) { m.remove("usr/lib/systemd/system") },
		"a unit unlike kubeadm's": func(m *machine) { m.remove("usr/lib/systemd/system/kubelet.service.d") },
		"no settings":             func(m *machine) { m.remove("var/lib/kubelet/config.yaml") },
	} {
		m := newMachine(t)
		prepare(m)
		if r := m.run("join", 0, "--start"); !r.failed || !strings.Contains(r.out, "what works where: "+pageCompatibility) {
			t.Errorf("%s: failed %v, and says:\n%s", name, r.failed, r.out)
		}
	}
}

func TestTokenIsNoToken(t *testing.T) {
	m := newMachine(t)
	m.write("token", "not a token\n")
	before := m.files()
	if r := m.run("join", 0, "--start", "--token-file="+filepath.Join(m.root, "token")); !r.failed ||
		strings.Contains(r.out, "not a token") {
		t.Errorf("failed %v, and says:\n%s", r.failed, r.out)
	}
	m.same(before, "refused")
}

func TestDryRun(t *testing.T) {
	each(t, func(t *testing.T, fresh func(*testing.T) *machine, flags []string) {
		m := fresh(t)
		flags = flagsFor(m, flags)
		before := m.files()
		r := m.works("join", append([]string{"--dry-run"}, flags...)...)
		m.same(before, "would join")
		for _, want := range []string{"would: write " + m.root + "/etc/yurthub/config.yaml", "20-yurthub.conf"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("no %q in:\n%s", want, r.out)
			}
		}
		m.works("join", flags...)
		joined := m.files()
		m.told()
		r = m.works("reset", "--dry-run", "--start")
		m.same(joined, "would reset")
		if told := m.told(); len(told) != 0 || !strings.Contains(r.out, "would: rm -f") {
			t.Errorf("systemd was told %q; reset says:\n%s", told, r.out)
		}
	})
}

// TestImage: a node that does not run yet.
func TestImage(t *testing.T) {
	m := newMachine(t)
	m.remove("run", "var/lib/kubelet/kubeadm-flags.env")
	before := m.files()
	if r := m.run("join", 0); !r.failed || !strings.Contains(r.out, "--root needs --node-name") {
		t.Errorf("failed %v, and says:\n%s", r.failed, r.out)
	}
	m.same(before, "refused")
	m.works("join", "--node-name=n1")
	if link := m.files()["/etc/systemd/system/multi-user.target.wants/yurthub.service"]; !strings.HasSuffix(link,
		"to /etc/systemd/system/yurthub.service") {
		t.Errorf("the unit is not enabled: %q", link)
	}
	m.works("reset")
	m.same(before, "reset")
	if told := m.told(); len(told) != 0 {
		t.Errorf("systemd was told %q", told)
	}
}

// TestKeepData: what the hub knows is there for the next join, and goes with the last reset.
func TestKeepData(t *testing.T) {
	m := newMachine(t)
	before := m.files()
	m.works("join", "--start")
	m.write("var/lib/yurthub/cache/store.log", "what the hub knows")
	m.works("reset", "--start", "--keep-data")
	after := m.files()
	if !strings.HasSuffix(after["/var/lib/yurthub/cache/store.log"], "what the hub knows") {
		t.Error("the data is gone")
	}
	for path := range after {
		if _, found := before[path]; !found && !strings.HasPrefix(path, "/var/lib/yurthub") {
			t.Errorf("%s is left", path)
		}
	}
	m.works("join", "--start")
	m.works("reset", "--start")
	m.same(before, "reset in the end")
}

// TestOthersFilesStay: what somebody has put beside ours is told, and left.
func TestOthersFilesStay(t *testing.T) {
	m := newMachine(t)
	m.works("join", "--start")
	m.write("etc/yurthub/notes.txt", "mine")
	m.write("etc/systemd/system/kubelet.service.d/50-mine.conf", "[Service]\n")
	r := m.works("reset", "--start")
	after := m.files()
	for _, path := range []string{"/etc/yurthub/notes.txt", "/etc/systemd/system/kubelet.service.d/50-mine.conf"} {
		if after[path] == "" || !strings.Contains(r.out, filepath.Dir(path)) {
			t.Errorf("%s: %q, and reset says:\n%s", path, after[path], r.out)
		}
	}
	if _, found := after["/etc/yurthub/install"]; found {
		t.Error("the notes are left")
	}
}

// TestServingCertificate: yurthub finds the certificate with which kubelet serves wherever kubelet's flags have it.
func TestServingCertificate(t *testing.T) {
	const current = "/var/lib/kubelet/pki/kubelet-server-current.pem"
	for name, tt := range map[string]struct {
		arguments string
		flags     []string
		says      string // in yurthub's settings
	}{
		"kubeadm's":        {},
		"a directory":      {"--node-ip=192.0.2.1 --cert-dir=/srv/kubelet/pki/ --v=1", nil, "/srv/kubelet/pki"},
		"a file":           {"--tls-cert-file /srv/tls/kubelet.crt --cert-dir=/srv/pki", nil, "/srv/tls/kubelet.crt"},
		"bootstrapped":     {"--rotate-server-certificates", nil, current},
		"not bootstrapped": {"--rotate-server-certificates=false", nil, ""},
		"both": {"--rotate-server-certificates=true --cert-dir=/srv/pki", nil,
			"/srv/pki/kubelet-server-current.pem"},
		"in a comment": {"--v=1\n# --cert-dir=/srv/pki", nil, ""},
		"as we are told": {"--cert-dir=/srv/pki", []string{"--set=kubelet-serving-certificate=/srv/own.pem"},
			"/srv/own.pem"},
		"the usual one": {"--cert-dir=/var/lib/kubelet/pki", nil, "/var/lib/kubelet/pki"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.write("etc/default/kubelet", "KUBELET_EXTRA_ARGS="+tt.arguments+"\n")
			m.works("join", append([]string{"--start"}, tt.flags...)...)
			content, err := os.ReadFile(filepath.Join(m.root, "etc/yurthub/config.yaml"))
			m.must(err)
			var settings map[string]any
			m.must(yaml.Unmarshal(content, &settings))
			says, _ := settings[settingServing].(string)
			if says != tt.says || strings.Count(string(content), settingServing) > 1 {
				t.Errorf("yurthub looks at %q, want %q:\n%s", says, tt.says, content)
			}
		})
	}
}
