package install

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/connect"
	"yurtcoordinator/lab/e2e/kit"
)

var proxyScenarios = []kit.Scenario{{
	Name: "proxy", Tier: kit.Field, Lab: kit.Joining(kit.OnePool, 0), Run: behindAProxy,
	Doc: "A node whose only way to the cloud is a proxy with a password. `yurthub join` takes the proxy over from " +
		"kubelet, and nobody else is told the password. The proxy dies, the node is delegated until it is back, and " +
		"`yurthub check` names the proxy as the cause.",
}}

const (
	proxyUser     = "edge"
	proxyPassword = "only-the-proxy-hears-this"
	proxyPort     = "3128"
)

func behindAProxy(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	pods := t.DeployWeb()
	n := straightNode(t, name)
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	cloud, err := url.Parse(access.Host)
	t.Must(err)

	t.Say("a proxy with a password is the only way to the cloud from now on")
	end := n.proxy(cloud.Hostname())
	n.behind(cloud)
	n.beats("kubelet goes through the proxy")
	before := n.still()

	t.Say("join")
	start := time.Now()
	coordinator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	t.Say("%s", strings.TrimSpace(n.mustSh(n.joinCommand("--coordinator-server-addr="+coordinator.Host))))
	t.Figure("proxy_join_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub, and the hub through the proxy")
	n.adopt()
	n.undisturbed("joined", before)
	t.Pool.Settled(30 * time.Second)
	checked := n.mustSh(n.hub + " check --joined")
	if want := "is reached through the proxy http://" + cloud.Hostname() + ":" + proxyPort; !strings.Contains(checked, want) {
		t.Fail("check does not say %q:\n%s", want, checked)
	}
	n.passwordIsKept()
	n.logsThroughTheCloud(kit.On(pods, name))

	t.Say("the proxy dies")
	cut := time.Now()
	report := end()
	t.Say("it was asked for %v, and refused %d", report.Asked, report.Refused)
	if asked := slices.Sorted(maps.Keys(report.Asked)); !slices.Equal(asked, []string{cloud.Host}) || report.Refused > 0 {
		t.Fail("the proxy was asked for %v, and refused %d: want %s alone", asked, report.Refused, cloud.Host)
	}
	t.Node(name).Delegated(cut)
	t.NeverNotReady(cut, name)
	said := n.mustSh(n.hub + " check || echo exit status $?")
	for _, want := range []string{"exit status 1", "the proxy http://", "cannot be reached", "see that the proxy runs"} {
		if !strings.Contains(said, want) {
			t.Fail("check does not say %q:\n%s", want, said)
		}
	}
	n.passwordIsKept()

	t.Say("the proxy is back")
	healed := time.Now()
	end = n.proxy(cloud.Hostname())
	t.Node(name).Direct(healed)
	t.NeverNotReady(cut, name)
	t.Must(t.Seen.Untouched(kit.On(pods, name), cut))
	n.undisturbed("the proxy was dead", before)

	n.reset(before)
	if report := end(); len(report.Asked) == 0 {
		t.Fail("nobody has gone through the second proxy")
	}
}

// proxy starts a company's proxy on the cloud's machine. The returned function kills it, with all connections through it.
func (n *installed) proxy(address string) (end func() connect.Report) {
	return kit.Play[connect.Report](n.T, "cloud", connect.Command, connect.Order{
		Listen: address + ":" + proxyPort, User: proxyUser, Password: proxyPassword,
	})
}

// behind makes kubelet use the proxy, as an administrator would, and closes every other way to the cloud.
func (n *installed) behind(cloud *url.URL) {
	n.machine(fmt.Sprintf("iptables -w -A OUTPUT -p tcp -d %s --dport %s -j REJECT --reject-with tcp-reset",
		cloud.Hostname(), cloud.Port()))
	n.mustSh(fmt.Sprintf(`
umask 077
cat >/etc/systemd/system/kubelet.service.d/30-proxy.conf <<END
[Service]
Environment="HTTPS_PROXY=http://%s:%s@%s:%s" "NO_PROXY=10.78.0.0/16,.svc"
END
systemctl daemon-reload
systemctl restart kubelet
`, proxyUser, proxyPassword, cloud.Hostname(), proxyPort))
}

// passwordIsKept expects that the proxy's password is where an administrator and yurthub join have put it, readable for root
// alone, and nowhere else.
func (n *installed) passwordIsKept() {
	const kept = "/etc/systemd/system/kubelet.service.d/30-proxy.conf\n/etc/yurthub/proxy\n"
	found := n.mustSh("grep -rlsF " + proxyPassword + " /etc /run /var/lib/yurthub /var/lib/kubelet /var/log | sort")
	if found != kept {
		n.Fail("the password of the proxy is in\n%swant it in\n%s", found, kept)
	}
	if mode := strings.TrimSpace(n.mustSh("stat -c '%a %U' /etc/yurthub/proxy")); mode != "600 root" {
		n.Fail("/etc/yurthub/proxy is %s", mode)
	}
	if args := n.machine("ps -e -o args="); strings.Contains(args, proxyPassword) {
		n.Fail("a command line has the proxy's password")
	}
}

// logsThroughTheCloud reads a line of each Pod's log, by the cloud's API server.
func (n *installed) logsThroughTheCloud(pods map[types.UID]kit.PodAt) {
	for _, pod := range pods {
		n.Eventually(30*time.Second, "logs of "+pod.Name+" through the cloud", func() error {
			_, err := n.Cloud.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(n.Ctx)
			return err
		})
	}
}
