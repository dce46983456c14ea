package join

import (
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"yurtcoordinator/internal/hub/bypass"
)

const podPrefix = "0b5c1c8e-7a5e-4d1b-9a53-6f3c2d1e0f0"

// withAgents is a kubeadm node whose Pods were told where the cloud is, and a hub that has noted where it serves Pods.
func withAgents(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	for i, name := range []string{"kube-proxy", "coredns", "flanneld", "shop"} {
		m.programs = append(m.programs, bypass.Program{PID: 11 + i, Name: name, Pod: podPrefix + string(rune('1'+i)),
			Told: cloudService})
	}
	m.programs = append(m.programs, bypass.Program{PID: 20, Name: "kube-proxy", Pod: strings.Repeat("a", 32), Static: true,
		Told: cloudService})
	m.write("var/log/pods/web_shop-1_"+podPrefix+"4/shop/0.log", "")
	m.during = func(step string) {
		if strings.Contains(step, "start yurthub.service") {
			m.noteAddress()
		}
	}
	return m
}

func authority(name string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
}

// noteAddress is what a hub does that finds where it serves Pods, and what kubelet gives them because of it.
func (m *machine) noteAddress() {
	m.t.Helper()
	m.write("var/lib/yurthub/pki/node-address", "10.0.0.7\n")
	m.write("var/lib/yurthub/pki/hub.pem", authority("the hub's own")+authority("the pool's"))
	m.give(authority("cloud's")+authority("the pool's"), "server: https://10.0.0.7:10268\n")
}

// give is what kubelet gives its Pods: the authorities, and kube-proxy's kubeconfig.
func (m *machine) give(ca, kubeconfig string) {
	m.t.Helper()
	for _, n := range "123" {
		m.write("var/lib/kubelet/pods/"+podPrefix+string(n)+"/volumes/kubernetes.io~projected/kube-api-access-x/ca.crt", ca)
	}
	m.write("var/lib/kubelet/pods/"+podPrefix+"1/volumes/kubernetes.io~configmap/kube-proxy/kubeconfig.conf", kubeconfig)
}

func (m *machine) ended() (all []string) {
	for _, told := range m.told() {
		if pid, ok := strings.CutPrefix(told, "end "); ok {
			all = append(all, pid)
		}
	}
	return all
}

func TestAgentsTurn(t *testing.T) {
	m := withAgents(t)
	r := m.works("join", "--start", "--nodepool-name=p1")
	if got := m.ended(); !slices.Equal(got, []string{"11", "12", "13"}) {
		t.Errorf("join has ended %q:\n%s", got, r.out)
	}
	for _, name := range agents {
		if !strings.Contains(r.out, name+" goes through yurthub\n") {
			t.Errorf("nothing is said of %s:\n%s", name, r.out)
		}
	}
	settings, err := os.ReadFile(filepath.Join(m.root, fileConfig))
	if err != nil || !strings.Contains(string(settings), "secure-bind-address: \"node\"\nmasterservice: \"true\"\n") {
		t.Errorf("%v, settings:\n%s", err, settings)
	}
	if r := m.works("join", "--start", "--nodepool-name=p1"); len(m.ended()) != 0 {
		t.Errorf("joined again, and agents were ended:\n%s", r.out)
	}
	m.programs[3].Told = atHub // an ordinary Pod that was made since
	m.during = func(step string) {
		if strings.Contains(step, "restart kubelet") {
			m.give(authority("cloud's"), "server: https://10.0.0.1:6443\n")
		}
	}
	r = m.works("reset", "--start")
	if got := m.ended(); !slices.Equal(got, []string{"111", "112", "113"}) {
		t.Errorf("reset has ended %q:\n%s", got, r.out)
	}
	if !strings.Contains(r.out, "kube-proxy goes straight to the cloud\n") ||
		!strings.Contains(r.out, "restart them if they use the API: web/shop-1\n") {
		t.Errorf("reset says:\n%s", r.out)
	}
	for _, p := range m.programs[:3] {
		if p.Told != cloudService {
			t.Errorf("%s is told %v", p.Name, p.Told)
		}
	}
}

// TestAgentsGoOn where the hub cannot serve them, or is not to: join works all the same, and says why.
func TestAgentsGoOn(t *testing.T) {
	for name, tt := range map[string]struct {
		flags   []string
		prepare func(*machine)
		says    string
	}{
		"nobody approves": {[]string{"--nodepool-name=p1"}, func(m *machine) { m.unwell("agents") }, "bypass yurthub for now"},
		"not wanted":      {[]string{"--nodepool-name=p1", "--agents=false"}, func(*machine) {}, "--agents=false"},
		"no pool":         {nil, func(*machine) {}, "give --nodepool-name"},
		"Pods are not to": {[]string{"--nodepool-name=p1", "--set=masterservice=false"}, func(*machine) {},
			"masterservice=false"},
		"kubelet is stuck": {[]string{"--nodepool-name=p1"}, func(m *machine) {
			m.during = nil
			m.noteAddress()
			m.give("", "")
		}, "kubelet has not given it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := withAgents(t)
				tt.prepare(m)
				r := m.works("join", append([]string{"--start"}, tt.flags...)...)
				if got := m.ended(); len(got) != 0 || m.way() != "hub" || !strings.Contains(r.out, tt.says) {
					t.Errorf("ended %q, kubelet goes %s; join says:\n%s", got, m.way(), r.out)
				}
			})
		})
	}
}

// TestResetWithoutTheCloud ends them all the same: kubelet starts them when it can, and the hub goes away.
func TestResetWithoutTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withAgents(t)
		m.works("join", "--start", "--nodepool-name=p1")
		m.told()
		if r := m.works("reset", "--start"); len(m.ended()) != 3 || !strings.Contains(r.out, "kubelet has not given it") {
			t.Errorf("reset says:\n%s", r.out)
		}
	})
}

// TestResetWhereThePoolHasTurnedThem: a PoolSettings has told Pods the hub's address, and the node's own settings do not.
func TestResetWhereThePoolHasTurnedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withAgents(t)
		m.works("join", "--start", "--nodepool-name=p1", "--agents=false", "--set=secure-bind-address=node")
		if ended := m.ended(); len(ended) != 0 {
			t.Errorf("join --agents=false has ended %q", ended)
		}
		m.programs[0].Told, m.programs[3].Told = atHub, atHub
		r := m.works("reset", "--start")
		if got := m.ended(); !slices.Equal(got, []string{"11"}) || m.programs[0].Told != cloudService ||
			!strings.Contains(r.out, "restart them if they use the API: web/shop-1\n") {
			t.Errorf("reset has ended %q, and says:\n%s", got, r.out)
		}
	})
}

func TestPodsAt(t *testing.T) {
	for settings, want := range map[string]string{
		"masterservice: \"true\"\nsecure-bind-address: \"node\"\n":                                "10.0.0.7:10268",
		"masterservice: \"true\"\nsecure-bind-address: \"fd00::1\"\nsecure-port: \"10000\"\n":     "[fd00::1]:10000",
		"masterservice: \"false\"\nsecure-bind-address: \"node\"\n":                               "10.0.0.7:10268",
		"secure-bind-address: \"node\"\n":                                                         "10.0.0.7:10268",
		"masterservice: \"true\"\n":                                                               "",
		"masterservice: \"true\"\nsecure-bind-address: \"node\"\nsecure-port: \"not a number\"\n": "",
	} {
		m := newMachine(t)
		m.noteAddress()
		m.write("etc/yurthub/config.yaml", settings)
		h := newHand(t.Context(), Where{Root: m.root}, m, nil)
		h.root = m.root
		at, _ := netip.ParseAddrPort(want)
		if got := h.podsAt(); got != at {
			t.Errorf("%q: %v, want %q", settings, got, want)
		}
	}
}

// TestEnd ends a process of this machine, by its number.
func TestEnd(t *testing.T) {
	if err := (Machine{}).End(t.Context(), 1<<22+1); err != nil {
		t.Errorf("a process that is no more: %v", err)
	}
}
