package cloud

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/lab/e2e/kit"
)

// pluginSays compares the output of `kubectl yurt` with the state of the first pool, whose coordinator is on node. It expects
// this state and history of the node named by about, asked from the cloud and from the pool's LAN alone.
func pluginSays(t *kit.T, node, about, state, happened string) {
	var leader string
	t.Eventually(70*time.Second, "kubectl yurt shows the pool as it is", func() error {
		var said struct {
			Items []struct {
				Metadata                             struct{ Name string }
				Coordinator, CoordinatorNode, Leader string
				Nodes, Ready                         int
				Delegated, Problems                  []string
			}
		}
		if err := yurt(t, "cloud", &said, "status", "p1"); err != nil {
			return err
		}
		pools := said.Items
		var cut []string
		if state == "Delegated" {
			cut = []string{about}
		}
		if len(pools) != 1 || pools[0].Metadata.Name != "p1" || pools[0].Coordinator != "Ready" ||
			pools[0].CoordinatorNode != node ||
			pools[0].Nodes != t.Config.Nodes || pools[0].Ready != t.Config.Nodes || !slices.Equal(pools[0].Delegated, cut) ||
			len(pools[0].Problems) != len(cut) {
			return fmt.Errorf("status: %+v; want p1 with its coordinator on %s, all Ready, and %v delegated", pools, node, cut)
		}
		leader = pools[0].Leader
		leads, err := t.Pool.Leader(t.Pool.Hubs())
		if err == nil && leader != leads {
			err = fmt.Errorf("status: %q leads, want %q", leader, leads)
		}
		if err != nil {
			return err
		}
		return nil
	})
	for _, via := range []string{"cloud", "coordinator/p1"} {
		t.Eventually(20*time.Second, "kubectl yurt, through "+via+", says why", func() error {
			var why struct {
				Node, Pool, State, Because string
				History                    []struct{ What string }
			}
			if err := yurt(t, via, &why, "why", about); err != nil {
				return err
			}
			if why.Node != about || why.Pool != "p1" || why.State != state || why.Because == "" {
				return fmt.Errorf("why %s: %+v; want %s", about, why, state)
			}
			is := func(h struct{ What string }) bool { return h.What == happened }
			if via == "cloud" && !slices.ContainsFunc(why.History, is) {
				return fmt.Errorf("why %s: %s is not in its history: %+v", about, happened, why.History)
			}
			return nil
		})
	}
	trafficIsTold(t, "coordinator/p1")
	checkSays(t, about, state == "Delegated")
	bundleHasNoSecrets(t)
	said, err := yurtPrints(t, "cloud", "leader", "p1")
	if err != nil || strings.TrimSpace(said) != leader {
		t.Fail("leader p1: %q, %v; want %s", said, err, leader)
	}
	printed, err := yurtPrints(t, "cloud", "kubeconfig", "p1")
	t.Must(err)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(printed))
	t.Must(err)
	if !strings.HasSuffix(config.Host, ":10270") {
		t.Fail("kubeconfig p1: it leads to %s", config.Host)
	}
	if printed, err := yurtPrints(t, "cloud", "why", "no-such-node"); err == nil {
		t.Fail("why no-such-node: %s", printed)
	}
}

// checkSays expects `kubectl yurt check` to find that a node's link is down, or else that all is well.
func checkSays(t *kit.T, node string, down bool) {
	t.Eventually(20*time.Second, "kubectl yurt check says how "+node+" is", func() error {
		var check struct {
			OK       bool
			Findings []struct{ Level, What, Why string }
		}
		if err := yurt(t, "cloud", &check, "check", node); err != nil {
			return err
		}
		for _, f := range check.Findings {
			if f.What == "heartbeat" && (f.Level == "warn") != down || f.Level == "fail" {
				return fmt.Errorf("it finds %+v", check.Findings)
			}
		}
		named, err := yurtPrints(t, "cloud", "status", "--problems", "-o", "name")
		if err == nil && strings.Contains(named, "nodepool.apps.openyurt.io/p1\n") != down {
			err = fmt.Errorf("status --problems names %q", named)
		}
		return err
	})
}

// bundleHasNoSecrets packs a bundle about the pool, and expects none of the contents of the pool's Secrets in it.
func bundleHasNoSecrets(t *kit.T) {
	packed, err := yurtPrints(t, "cloud", "bundle", "p1", "-f", "-")
	t.Must(err)
	unzipped, err := gzip.NewReader(strings.NewReader(packed))
	t.Must(err)
	var text strings.Builder
	archive, files := tar.NewReader(unzipped), 0
	for h, err := archive.Next(); !errors.Is(err, io.EOF); h, err = archive.Next() {
		t.Must(err)
		fmt.Fprintln(&text, h.Name)
		_, err = io.CopyN(&text, archive, h.Size)
		t.Must(err)
		files++
	}
	for _, has := range []string{"/logs/yurt-coordinator", "kind: YurtCoordinator", "/nodes/p1-n1.txt"} {
		if !strings.Contains(text.String(), has) {
			t.Fail("the bundle has no %s", has)
		}
	}
	secrets, err := t.Cloud.CoreV1().Secrets(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	looked := 0
	for _, s := range secrets.Items {
		for key, value := range s.Data {
			for _, secret := range secretsIn(key, value) {
				if looked++; strings.Contains(text.String(), secret) {
					t.Fail("the bundle has %s of Secret %s/%s", key, s.Namespace, s.Name)
				}
			}
		}
	}
	if looked == 0 {
		t.Fail("there are no Secrets to look for")
	}
	t.Say("the bundle has %d files, %d bytes, and none of %d secrets", files, len(packed), looked)
}

// secretsIn returns the secret parts of a value of a Secret: a token, or a line of a private key.
func secretsIn(key string, value []byte) []string {
	if config, err := clientcmd.RESTConfigFromKubeConfig(value); err == nil && len(config.KeyData) > 0 {
		inBase64 := base64.StdEncoding.EncodeToString(config.KeyData)
		return append(secretsIn("", config.KeyData), inBase64[len(inBase64)/2:])
	}
	if key == "token" {
		return []string{string(value)}
	}
	if !strings.Contains(string(value), "PRIVATE KEY-----") {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(value)), "\n")
	return []string{lines[len(lines)/2]}
}

// trafficIsTold compares the traffic that hubs report for their links since their start with the bytes that the cables carried.
// The hubs' count lacks the headers of TCP and IP, and packets without payload.
func trafficIsTold(t *kit.T, via string) {
	// The leader tells the cloud each 3 minutes, and at once only what matters more.
	t.Eventually(200*time.Second, "kubectl yurt, through "+via+", says what the links carried", func() error {
		var said struct {
			Nodes []struct {
				Node                     string
				SentBytes, ReceivedBytes uint64
			}
		}
		if err := yurt(t, via, &said, "traffic", "p1"); err != nil {
			return err
		}
		if len(said.Nodes) != t.Config.Nodes {
			return fmt.Errorf("%+v, want %d nodes", said.Nodes, t.Config.Nodes)
		}
		carried, err := t.Lab.Traffic(t.Ctx, false)
		t.Must(err)
		for _, n := range said.Nodes {
			is := carried[n.Node].Sub(t.CarriedBefore[n.Node])
			if n.SentBytes > is.Up || n.ReceivedBytes > is.Down || n.SentBytes < is.Up/4 || n.ReceivedBytes < is.Down/3 {
				return fmt.Errorf("%+v; its cable carried %+v", n, is)
			}
		}
		return nil
	})
}

// yurt decodes the JSON output of a command of the plugin.
func yurt(t *kit.T, via string, into any, args ...string) error {
	out, err := yurtPrints(t, via, append(args, "--output=json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

func yurtPrints(t *kit.T, via string, args ...string) (string, error) {
	cmd, err := t.Lab.Kubectl(t.Ctx, via, append([]string{"yurt"}, args...))
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("kubectl yurt %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}
