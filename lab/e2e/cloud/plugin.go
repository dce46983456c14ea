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
		leads, err := t.Pool.Leader(t.Pool.Hubs())
		if err == nil && pools[0].Leader != leads {
			err = fmt.Errorf("status: %q leads, want %q", pools[0].Leader, leads)
		}
		return err
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
	bundleHasNoSecrets(t)
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

// trafficIsTold expects that `kubectl yurt traffic` has the count of each node's hub.
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
		for _, n := range said.Nodes {
			if n.SentBytes == 0 || n.ReceivedBytes == 0 {
				return fmt.Errorf("%+v, want what its link has carried", n)
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
