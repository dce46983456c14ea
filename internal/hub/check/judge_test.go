package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/bypass"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/identity"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// fine are the facts of a node with nothing wrong.
func fine() Facts {
	f := Facts{
		Settings: Config{Config: settings()},
		Now:      noon, Root: true,
		Hub: Hub{Status: front.HubStatus{
			Node: "n1", Cloud: "up", Coordinator: "up", CoordinatorAddress: "https://10.0.0.1:10270",
		}},
		Keys: &Keys{
			Status: identity.Status{
				Client:      identity.State{NotBefore: noon.AddDate(0, -6, 0), NotAfter: noon.AddDate(0, 6, 0)},
				Authorities: &identity.Authorities{Trusted: []identity.Trusted{{NotAfter: noon.AddDate(9, 0, 0)}}},
			},
			KeyFile: "/pki/client.pem", Mode: 0o600, RootsFrom: "/pki/ca.crt",
		},
		Cloud: []Server{{
			Address: "https://cloud:6443", Verified: true, Date: noon, At: noon.Add(time.Second),
			Node: Node{Asked: true, Found: true, Pool: "p1", Ready: "True"},
		}},
		Dirs:    []Dir{{Flag: flagCache, Path: "/cache", Free: 1 << 30}, {Flag: flagCerts, Path: "/pki", Free: 1 << 30}},
		Kubelet: Kubelet{Running: true, Config: "/etc/yurthub/kubelet.conf", Server: "https://127.0.0.1:10261"},
	}
	f.Hub.Status.Kubelet = &identity.KubeletFound{
		KubeletServing: edge.KubeletServing{Way: edge.KubeletPinned, Digest: "aa"}, File: "/pki/kubelet.crt",
	}
	return f
}

// settings are those of a hub that would start.
func settings() (c config.Config) {
	c.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	c.Node, c.Pool, c.EnableCoordinator, c.ServerAddresses = "n1", "p1", true, []string{"https://cloud:6443"}
	c.CertDir, c.DiskCachePath = "/pki", "/cache"
	c.Identity = config.Identity{
		BootstrapFile: "/token", CACertHashes: []string{"sha256:aa"}, KubeletKubeconfig: "/kubelet.conf",
	}
	return c
}

const serves = "kubelet's serving certificate"

func TestNothingWrong(t *testing.T) {
	findings := Judge(fine())
	for _, f := range findings {
		if f.Level != OK || f.Do != "" {
			t.Errorf("%+v, want ok, and nothing to do", f)
		}
	}
	if len(findings) < 10 || Failed(findings) {
		t.Errorf("%d findings, failed %v", len(findings), Failed(findings))
	}
}

// TestJudge breaks one thing at a time.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		broke func(*Facts)
		level Level
		what  string
		say   string // in why or do
	}{
		{"settings", func(f *Facts) { f.Settings.Node, f.Hub.Status.Node = "", "" }, Fail, "settings", "--node-name"},

		{"no hub", stopped, Fail, "yurthub", "systemctl status"},
		{"no hub yet", func(f *Facts) { stopped(f); f.Settings.BeforeStart = true }, OK, "yurthub", "no yurthub runs yet"},
		{"no hub at the health port", func(f *Facts) { f.Hub = Hub{Trouble: "404"} }, Fail, "yurthub", "404"},
		{"hub of another node", func(f *Facts) { f.Hub.Status.Node = "n2" }, Fail, "yurthub", "n2"},
		{"hub: cloud failing", func(f *Facts) { f.Hub.Status.Cloud = "failing" }, Fail, "yurthub: cloud", "503"},
		{"hub: cloud down", func(f *Facts) { f.Hub.Status.Cloud = "down" }, Fail, "yurthub: cloud", "down"},
		{"hub: cloud unknown", func(f *Facts) { f.Hub.Status.Cloud = "unknown" }, Fail, "yurthub: cloud", "again"},
		{"hub: coordinator down", func(f *Facts) { f.Hub.Status.Coordinator = "down" }, Warn, "yurthub: coordinator",
			"does not reach it at https://10.0.0.1:10270"},
		{
			"hub: a standby down",
			fromStatus(`{"coordinators":[{"address":"https://a","link":"up"},{"address":"https://b","link":"down"}]}`),
			Warn, "yurthub: coordinator", "https://b",
		},
		{"hub: disk full", fromStatus(`{"disk":{"error":"no space left on device"}}`), Fail, "yurthub: disk", "no space"},
		{"hub: disk damaged", fromStatus(`{"disk":{"corrupt":"page 4"}}`), Warn, "yurthub: disk", "page 4"},
		{"hub: disk fine", fromStatus(`{"disk":{"bytes":4096},"kept":[{},{}]}`), OK, "yurthub: disk",
			"2 selections are kept, 4 KiB"},
		{
			"hub: settings refused",
			fromStatus(`{"settings":{"generation":5,"running":4,"state":"refused","why":"v1/services is given twice"}}`),
			Fail, "yurthub: settings of the pool", "generation 5, and it runs with generation 4: v1/services",
		},
		{
			"hub: settings need a restart",
			fromStatus(`{"settings":{"generation":5,"state":"restart","why":"own-objects"}}`),
			Warn, "yurthub: settings of the pool", "systemctl restart yurthub",
		},
		{
			"hub: settings of a newer controller",
			fromStatus(`{"settings":{"generation":5,"running":5,"why":"does not know: profile"}}`),
			Warn, "yurthub: settings of the pool", "does not know: profile",
		},
		{
			"hub: settings taken", fromStatus(`{"settings":{"generation":5,"running":5,"own":["cache-agents"]}}`),
			OK, "yurthub: settings of the pool", "its own --cache-agents",
		},

		{"port of another", func(f *Facts) { stopped(f); f.Ports[0].Held = true }, Fail, "--port", "ss -ltnp sport = :10261"},
		{
			"port that cannot be had", func(f *Facts) { stopped(f); f.Ports[0].Trouble = "cannot assign" },
			Fail, "--port", "cannot assign",
		},
		{"port free", stopped, OK, "--port", "is free"},

		{"settings that certificates refuse", func(f *Facts) { f.Keys = &Keys{Refused: `CA hash "x": want`} }, Fail, "settings",
			"CA hash"},
		{"certificate refused, not expired", func(f *Facts) { f.Keys.Client.Problem = "refused" }, Warn, findingClient,
			"refused"},
		{"certificate refused, expired", func(f *Facts) { f.Keys.Client = identity.State{Problem: "refused", NotAfter: noon} },
			Fail, findingClient, "kubeadm token create"},
		{"waits for approval", func(f *Facts) { f.Keys.Client = identity.State{Problem: "waits", Waiting: "yurthub-client-1"} },
			Fail, findingClient, "kubectl certificate approve yurthub-client-1"},
		{"serving waits", func(f *Facts) { f.Keys.Serving = identity.State{Problem: "waits", Waiting: "yurthub-serving-1"} },
			Warn, "yurthub: serving certificate", "kubectl describe csr yurthub-serving-1"},
		{"others' certificate ends", func(f *Facts) {
			f.Settings.CertFile, f.Settings.KeyFile, f.Keys.Client.NotAfter = "/c", "/k", noon
		}, Fail, findingClient, "the program that maintains it"},
		{"others' certificate is useless", func(f *Facts) {
			f.Settings.CertFile, f.Settings.KeyFile, f.Keys.Client = "/c", "/k", identity.State{Problem: "no such file"}
		}, Fail, findingClient, "--cert-file"},
		{"not root", func(f *Facts) { f.Keys.Client, f.Root = identity.State{Problem: "denied"}, false }, Fail, findingClient,
			"run this as root"},
		{"not root, at the hub", func(f *Facts) { f.Hub, f.Root = Hub{Trouble: "403"}, false }, Fail, "yurthub",
			"run this as root"},
		{"cloud, before its authority is discovered", undiscovered, OK, "cloud", "answers"},
		{"cloud, its authority never discovered", func(f *Facts) {
			undiscovered(f)
			f.Settings.BeforeStart = false
		}, Fail, "cloud", "cannot be verified"},
		{"cloud, no hash to discover its authority by", func(f *Facts) {
			undiscovered(f)
			f.Keys.Authorities.Problem = "no CA hash"
		}, Fail, "cloud", "cannot be verified"},

		{"clock 31 s ahead", func(f *Facts) { f.Cloud[0].At = noon.Add(31 * time.Second) }, Warn, "clock",
			"31s ahead of that of the cloud"},
		{"clock 6 min behind", func(f *Facts) { f.Cloud[0].At = noon.Add(-6 * time.Minute) }, Fail, "clock",
			"6m0s behind that of the cloud"},
		{"clock of 1970", func(f *Facts) { f.Now = time.Unix(500, 0) }, Fail, "clock", "battery"},
		{
			"clock, by an unverified server", func(f *Facts) {
				f.Cloud[0].At, f.Cloud[0].Verified = noon.Add(time.Hour),
					false
			},
			Fail, "clock", "could not be verified",
		},

		{"no Node", func(f *Facts) { f.Cloud[0].Node.Found = false }, Warn, "node", "no Node n1"},
		{"Node of no pool", func(f *Facts) { f.Cloud[0].Node.Pool = "" }, Fail, "node", "apps.openyurt.io/nodepool=p1"},
		{"Node of another pool", func(f *Facts) { f.Cloud[0].Node.Pool = "p2" }, Fail, "node", "p2"},
		{"Node not Ready", func(f *Facts) { f.Cloud[0].Node.Ready = "Unknown" }, Warn, "node", "Unknown"},

		{"disk unusable", func(f *Facts) { f.Dirs[0].Trouble = "not a directory" }, Fail, "--disk-cache-path",
			"not a directory"},
		{"disk full", func(f *Facts) { f.Dirs[1].Free = 1 << 20 }, Fail, "--cert-dir", "1 MiB are free"},
		{"disk nearly full", func(f *Facts) { stopped(f); f.Dirs[0].Free = 100 << 20 }, Warn, "--disk-cache-path", "256 MiB"},
		{"disk of the running hub", func(f *Facts) { f.Dirs[0].Free = 100 << 20 }, OK, "--disk-cache-path", "100 MiB"},
		{"enough for certificates", func(f *Facts) { stopped(f); f.Dirs[1].Free = 100 << 20 }, OK, "--cert-dir", "100 MiB"},

		{"no kubelet", func(f *Facts) { f.Kubelet = Kubelet{} }, Warn, "kubelet", "no kubelet runs"},
		{"kubelet past the hub", func(f *Facts) { f.Kubelet.Server = "https://cloud:6443" }, Warn, "kubelet",
			"not through yurthub"},
		{
			"joined, kubelet past the hub", func(f *Facts) { f.Kubelet.Server, f.Settings.Joined = "https://cloud:6443", true },
			Fail, "kubelet", "not through yurthub",
		},
		{"kubelet that rotates", func(f *Facts) { f.Kubelet.Rotates = true }, Warn, "kubelet", "rotate-certificates=false"},
		{"joined, kubelet that rotates", func(f *Facts) { f.Kubelet.Rotates, f.Settings.Joined = true, true }, Fail, "kubelet",
			"rotate-certificates=false"},
		{"joined, no kubelet", func(f *Facts) { f.Kubelet.Running, f.Settings.Joined = false, true }, Fail, "kubelet",
			"no kubelet runs"},
		{"kubelet without its file", func(f *Facts) { f.Kubelet.Trouble = "it is not there" }, Warn, "kubelet", "not there"},
		{"not approved", kubeletIs(edge.KubeletUnapproved, "nobody has approved"), Warn, serves, "kubeletServing.cidrs"},
		{"approval ended", kubeletIs(edge.KubeletEnded, "its certificate ended"), Warn, serves, "certificate ended"},
		{"next not approved", kubeletIs(edge.KubeletOverdue, "nobody for the next"), Warn, serves, "for the next"},
		{"signed", kubeletIs(edge.KubeletSigned, ""), OK, serves, "signed"},
		{"no serving certificate", kubeletIs(edge.KubeletMissing, "no such file"), Warn, serves, "--kubelet-serving-certificate"},
		{"kubelet not well", func(f *Facts) { f.Kubelet.Health = "status 500" }, Warn, "kubelet", "status 500"},

		{"a disk that hangs", func(f *Facts) { f.Unanswered = []string{"--cert-dir"} }, Fail, "--cert-dir", "too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fine()
			tt.broke(&f)
			for _, found := range Judge(f) {
				if found.What == tt.what && found.Level == tt.level && strings.Contains(found.Why+" "+found.Do, tt.say) {
					if found.Level != OK && found.Do == "" {
						t.Errorf("%+v says nothing of what to do", found)
					}
					return
				}
			}
			t.Errorf("no finding %s %s with %q in:\n%s", tt.level, tt.what, tt.say, table(t, Judge(f)))
		})
	}
}

func stopped(f *Facts) {
	f.Hub, f.Ports = Hub{Nobody: true}, []Port{{Flag: "port", Address: "127.0.0.1:10261"}}
}

// kubeletIs has the hub say how the coordinator knows kubelet.
func kubeletIs(way edge.KubeletWay, problem string) func(*Facts) {
	return func(f *Facts) {
		f.Hub.Status.Kubelet = &identity.KubeletFound{KubeletServing: edge.KubeletServing{Way: way}, Problem: problem}
	}
}

// undiscovered is a node with nothing but a token: no hub has run, and the cloud can't be verified yet.
func undiscovered(f *Facts) {
	stopped(f)
	f.Settings.BeforeStart, f.Keys.Authorities.Trusted = true, nil
	f.Cloud[0].Why, f.Cloud[0].Do = "it cannot be verified", "give --ca-file"
	f.Cloud[0].Unknown, f.Cloud[0].Verified = true, false
}

func fromStatus(text string) func(*Facts) {
	return func(f *Facts) {
		if err := json.Unmarshal([]byte(text), &f.Hub.Status); err != nil {
			panic(err)
		}
	}
}

func table(t *testing.T, findings []Finding) string {
	t.Helper()
	var out bytes.Buffer
	if err := Table(&out, findings); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestServers: one that works is enough.
func TestServers(t *testing.T) {
	f := fine()
	f.Cloud[0].Why, f.Cloud[0].Do = "it refuses", "look"
	if !Failed(Judge(f)) {
		t.Error("the only server refuses, which is no failure")
	}
	f.Cloud = append(f.Cloud, fine().Cloud[0])
	if Failed(Judge(f)) {
		t.Errorf("one of two servers refuses, which is a failure:\n%s", table(t, Judge(f)))
	}
}

func TestOutput(t *testing.T) {
	findings := []Finding{{OK, "yurthub", "runs", ""}, {Fail, "clock", "is <wrong>", "set it"}}
	want := "ok    yurthub  runs\nfail  clock    is <wrong>. To do: set it\n"
	if got := table(t, findings); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
	var out bytes.Buffer
	if err := JSON(&out, findings); err != nil {
		t.Fatal(err)
	}
	var read struct {
		OK       bool
		Findings []struct{ Level, What, Why, Do string }
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if read.OK || len(read.Findings) != 2 || read.Findings[1].Level != "fail" || !strings.Contains(out.String(), "<wrong>") {
		t.Errorf("JSON: %s", out.String())
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\x1b[31m\tc":            "a b [31m c",
		"\xff\xfe":                   "",
		strings.Repeat("x", 100_000): strings.Repeat("x", maxText) + "…",
		strings.Repeat("é", 1000):    strings.Repeat("é", maxText/2) + "…",
	} {
		if got := line(text); got != want {
			t.Errorf("line(%.20q) = %q, want %q", text, got, want)
		}
	}
}

func TestJudgePods(t *testing.T) {
	const none = "none: no other program"
	past := func(told, to string) []bypass.Program {
		return []bypass.Program{{PID: 7, Name: "flanneld", Pod: "u", Told: netip.MustParseAddrPort(told),
			Past: []netip.AddrPort{netip.MustParseAddrPort(to)}}}
	}
	pods := func(address string, told bool, problem string) func(*Facts) {
		return func(f *Facts) {
			if err := json.Unmarshal(fmt.Appendf(nil, `{"pods":{"address":%q,"told":%t,"problem":%q}}`, address, told, problem),
				&f.Hub.Status); err != nil {
				t.Fatal(err)
			}
		}
	}
	const at, cloud = "10.0.0.7:10268", "10.96.0.1:443"
	for name, tt := range map[string]struct {
		address        string // --secure-bind-address
		master, agents bool
		change         func(*Facts)
		programs       []bypass.Program
		pods, past     string // "LEVEL part of why"; "": nothing is said
	}{
		"all is well": {"node", true, true, pods(at, true, ""), nil,
			"ok those that start now, and kube-proxy, use " + at, "ok " + none},
		"nobody asked": {"", false, false, func(*Facts) {}, past(cloud, cloud), "",
			"warn flanneld (process 7, of a Pod) to " + cloud},
		"no certificate": {"node", true, false, pods(at, false, "no certificate"), nil, "warn no certificate", "ok " + none},
		"no certificate, asked": {"node", true, true, pods(at, false, "no certificate"), nil, "fail no certificate",
			"ok " + none},
		"no address":   {"node", true, true, pods("", false, "not said"), nil, "fail not said", "ok " + none},
		"not served":   {"", false, true, func(*Facts) {}, nil, "fail serves no Pods", "ok " + none},
		"not told":     {"node", true, true, pods(at, false, ""), nil, "fail get the cloud's address", "ok " + none},
		"served alone": {"node", false, false, pods(at, false, ""), nil, "ok served at " + at, "ok " + none},
		"an agent past the hub": {"node", true, false, pods(at, true, ""), past(cloud, cloud),
			"ok those that start now", "warn flanneld"},
		"an agent at the hub": {"node", true, false, pods(at, true, ""), past(at, at), "ok those that start now", "ok " + none},
		"nothing runs":        {"node", true, false, func(f *Facts) { f.Hub.Nobody = true }, past(cloud, cloud), "", ""},
		"seen by somebody else": {"node", true, false, func(f *Facts) { pods(at, true, "")(f); f.Root = false }, nil,
			"ok those that start now", ""},
		"before yurthub started": {"node", true, false, func(f *Facts) { f.Settings.BeforeStart = true }, past(cloud, cloud),
			"warn serves no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.Settings.SecureBindAddress, f.Settings.MasterService, f.Settings.Agents = tt.address, tt.master, tt.agents
			f.Past = tt.programs
			tt.change(&f)
			for what, want := range map[string]string{"yurthub: Pods": tt.pods, "programs past yurthub": tt.past} {
				got := ""
				for _, each := range Judge(f) {
					if each.What == what {
						got = each.Level.String() + " " + each.Why
					}
				}
				level, part, _ := strings.Cut(want, " ")
				if (want == "") != (got == "") || !strings.HasPrefix(got, level) || !strings.Contains(got, part) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
		})
	}
}
