package offline

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var rotatedScenarios = []kit.Scenario{{
	Name: "agent-token-rotated", Run: agentTokenRotated,
	Lab: sendingPods(kit.Joining(lab.Config{
		Pools: 1, Nodes: 1, Timing: lab.Quick, Kubelet: lab.Real, NoProxy: true, NoCoordinator: true, CoreDNS: true,
	}, 0)),
	Doc: "kubelet renews the token of a CoreDNS Pod through the hub. Before CoreDNS shows the new token to anybody, the " +
		"node is cut off and loses its power. It boots, CoreDNS starts with that token, and names are answered.",
}}

// The CoreDNS Pod, and the port of its node at which it answers. The lab's own CoreDNS is at port 53.
const (
	agentName = "agent"
	agentPort = 5353
	// agentProgram is how the process begins.
	agentProgram = "/agent/coredns -conf"
)

func agentTokenRotated(t *kit.T) {
	node := t.Pool.Nodes()[0]
	t.Eventually(60*time.Second, "the node is ready", t.Pool.NodesReady)
	t.Pool.ServesPods()
	deployAgent(t, node)
	var want []netip.Addr
	t.Eventually(90*time.Second, "the Pod's CoreDNS answers", func() (err error) {
		want, err = askAgent(t, node)
		return err
	})
	first, err := agentToken(t, node)
	t.Must(err)

	t.Say("CoreDNS is stopped, so that it shows no token")
	_, err = t.Lab.Output(t.Ctx, node, "pkill", "-STOP", "-f", "^"+agentProgram)
	t.Must(err)
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.KubeletC)) // it keeps tokens in memory, and asks for others
	var renewed string
	t.Eventually(2*time.Minute, "kubelet has renewed the Pod's token", func() (err error) {
		renewed, err = agentToken(t, node)
		if err == nil && renewed == first {
			err = errors.New("it is the first one")
		}
		return err
	})
	t.Cut(node)
	t.Eventually(30*time.Second, "its hub calls the cloud down", func() error {
		if h := t.Pool.Hubs()[node]; h.Cloud != "down" {
			return fmt.Errorf("it says %q", h.Cloud)
		}
		return nil
	})
	t.Hold(3*time.Second, "the hub's disk is written once a second")

	t.Say("power-cycling %s", node)
	began := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.All))
	t.Eventually(2*time.Minute, "the Pod's CoreDNS answers as before", func() error {
		now, err := askAgent(t, node)
		if err == nil && !slices.Equal(now, want) {
			err = fmt.Errorf("it answers %v, before %v", now, want)
		}
		return err
	})
	t.Figure("restart_to_answer_s", time.Since(began).Seconds())
	if now, err := agentToken(t, node); err != nil || now != renewed {
		t.Fail("CoreDNS has another token than the last that kubelet got: %w", errors.Join(err))
	}
}

// askAgent asks the Pod's CoreDNS for a name that every cluster has.
func askAgent(t *kit.T, node string) ([]netip.Addr, error) {
	server := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), agentPort)
	found, err := t.Lab.LookupAt(t.Ctx, node, server, kit.Namespace, "kubernetes")
	if err == nil && len(found) == 0 {
		err = errors.New("it has no address")
	}
	return found, err
}

// agentToken returns the token that the Pod's CoreDNS finds in its file.
func agentToken(t *kit.T, node string) (string, error) {
	token, err := t.Lab.Output(t.Ctx, node, "sh", "-c", fmt.Sprintf(
		"nsenter -t $(pgrep -f '^%s' | head -1) -m cat /var/run/secrets/kubernetes.io/serviceaccount/token", agentProgram))
	if err == nil && token == "" {
		err = errors.New("the token is empty")
	}
	return token, err
}

// deployAgent runs CoreDNS in a Pod of a node, with a ServiceAccount's rights. The program is the lab's own.
func deployAgent(t *kit.T, node string) {
	bins, err := t.Lab.Programs()
	t.Must(err)
	t.MakeAccount(agentName)
	t.Bind(agentName, "view", kit.Account(agentName))
	const corefile = `. {\n bind 127.0.0.1\n errors\n kubernetes cluster.local {\n ttl 0\n }\n}\n`
	t.Node(node).RunPod(agentName, []string{"sh", "-c", fmt.Sprintf(
		"printf '%s' > /Corefile; exec %s /Corefile -dns.port %d", corefile, agentProgram, agentPort),
	}, func(p *corev1.Pod) {
		p.Spec.HostNetwork, p.Spec.ServiceAccountName = true, agentName
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "program", MountPath: "/agent", ReadOnly: true}}
		p.Spec.Volumes = []corev1.Volume{{Name: "program", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(bins.CoreDNS)},
		}}}
	})
}
