package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/image"
)

// An installed lab does what a cluster's operator does: it renders and applies the chart, and then makes a NodePool and
// a YurtCoordinator for each pool. It differs from a cluster only in values: images that are already on the nodes, and
// the lab's timing.

// YurtCoordinators is the resource of coordinators.
var YurtCoordinators = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1alpha1", Resource: "yurtcoordinators"}

// PoolSettings is the resource of pools' settings.
var PoolSettings = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1alpha1", Resource: "poolsettings"}

// labelControlPlane is the label of the cloud's node. kubeadm sets the same on a node that runs a control plane. The node also
// has a taint with this key.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// release is the name of the chart's release.
const release = "yurt-coordinator"

// settle is how long a coordinator serves in a lab before the next one is changed.
const settle = 5 * time.Second

// chartValues are the values that Helm gets in place of the chart's own. The lab's kubelets set the label of their pool
// themselves.
func (c Config) chartValues() []string {
	if c.Bare { // the chart's own, but for the images
		return append(imageValues(), c.ChartValues...)
	}
	pools := make([]string, c.Pools)
	for i := range pools {
		pools[i] = string(poolName(i + 1))
	}
	return slices.Concat([]string{
		"nodes.join={" + strings.Join(pools, ",") + "}",
		"controller.kubeletServing.cidrs={" + listed(c.families(), lanNetwork) + "}",
		"controller.silenceAfter=" + silenceAfter(c.Timing).String(),
		"coordinator.rollout.settle=" + settle.String(),
	}, imageValues(), c.ChartValues)
}

// imageValues name the images that are on the nodes.
func imageValues() []string {
	return []string{
		"image.registry=" + image.SystemRegistry,
		"controller.image.tag=" + image.SystemTag, "controller.image.pullPolicy=Never",
		"coordinator.image.tag=" + image.SystemTag, "coordinator.image.pullPolicy=Never",
	}
}

// FlannelImage returns the image of flannel's daemon, which all machines of a bare lab have.
func FlannelImage() string { return image.Flannel }

// renderCommand returns the Helm command that writes the chart's manifests.
func (l *Lab) renderCommand(ctx context.Context) *exec.Cmd {
	args := []string{"template", release, l.cfg.Chart, "--namespace=" + edge.NamespaceSystem}
	if l.bins.KubernetesVersion != "" { // Helm does not ask the cloud, and takes it for the one that Helm is made from
		args = append(args, "--kube-version="+l.bins.KubernetesVersion)
	}
	for _, v := range l.cfg.chartValues() {
		args = append(args, "--set-string="+v)
	}
	cmd := exec.CommandContext(ctx, l.bins.Helm, args...)
	cmd.Env = append(environment(os.Environ()), helmHome(l.dir)...)
	return cmd
}

// helmHome makes Helm keep its own files in a lab's directory.
func helmHome(dir string) []string {
	home := filepath.Join(dir, "helm")
	return []string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
}

// ChartValues returns the values that an installed lab gives the chart, NAME=VALUE as for helm --set-string.
func (c *Client) ChartValues() ([]string, error) {
	cfg, err := c.Config()
	return cfg.chartValues(), err
}

// Helm returns the command that runs Helm on the chart's release, in its namespace of an installed lab's cloud. Helm gets the
// verb, the release's name, the chart and its values (not for uninstall and test), and args.
func (c *Client) Helm(ctx context.Context, verb string, args ...string) (*exec.Cmd, error) {
	o, err := readOrder(c.dir)
	if err != nil {
		return nil, err
	}
	if !o.Config.Installed {
		return nil, errors.New("only an installed lab has a chart")
	}
	argv := []string{
		"--net", "--", o.Binaries.Helm, verb, release, "--kubeconfig=" + filepath.Join(c.dir, "pki", "admin.kubeconfig"),
		"--namespace=" + edge.NamespaceSystem,
	}
	if verb != "uninstall" && verb != "test" {
		argv = append(argv, o.Config.Chart)
		for _, v := range o.Config.chartValues() {
			argv = append(argv, "--set-string="+v)
		}
	}
	cmd, err := c.inside(ctx, append(argv, args...))
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, helmHome(c.dir)...)
	return cmd, nil
}

// install applies the chart to the cloud, which already serves. It leaves objects that already exist, because the cloud may
// have been powered on again.
func (l *Lab) install(ctx context.Context, progress func(string)) error {
	rendered, err := output(l.renderCommand(ctx))
	if err != nil {
		return fmt.Errorf("the chart %s: %w", l.cfg.Chart, err)
	}
	if err := l.apply(ctx, "chart.yaml", rendered); err != nil {
		return err
	}
	progress("applied the chart")
	return nil
}

// apply applies manifests with kubectl, as a user does, and keeps them in the lab's directory.
func (l *Lab) apply(ctx context.Context, name string, manifests []byte) error {
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, manifests, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, l.bins.Kubectl, "--kubeconfig="+filepath.Join(l.pki(), "admin.kubeconfig"),
		"apply", "--server-side", "--filename="+path)
	cmd.Env = append(environment(os.Environ()), "KUBECACHEDIR="+filepath.Join(l.dir, "kubectl"))
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("kubectl apply of %s: %w", name, err)
	}
	return nil
}

// output runs a program. On failure the error contains what the program printed.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return out, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// poolManifests returns a NodePool for each pool, and a YurtCoordinator unless the pool has none. If the pools have fewer nodes
// than a coordinator needs by default, it also returns the PoolSettings that lower the minimum.
func poolManifests(c Config) []byte {
	var b strings.Builder
	if c.Nodes < edge.MinPoolNodes {
		fmt.Fprintf(&b, `---
apiVersion: %s
kind: PoolSettings
metadata: {name: small-pools}
spec: {nodepoolSelector: {}, priority: -1, coordinator: {minNodes: %d}}
`, PoolSettings.GroupVersion(), c.Nodes)
	}
	for p := 1; p <= c.Pools; p++ {
		fmt.Fprintf(&b, `---
apiVersion: %s
kind: NodePool
metadata: {name: %s}
spec: {type: Edge}
`, NodePools.GroupVersion(), poolName(p))
		if c.of(p).NoCoordinator {
			continue
		}
		fmt.Fprintf(&b, `---
apiVersion: %[2]s
kind: YurtCoordinator
metadata: {name: %[1]s}
spec: {nodePool: %[1]s}
`, poolName(p), YurtCoordinators.GroupVersion())
	}
	return []byte(b.String())
}

// makeCoordinators makes the pools and their coordinators, and returns when all are ready.
func (l *Lab) makeCoordinators(ctx context.Context, progress func(string)) error {
	if err := l.markControlPlane(ctx); err != nil {
		return err
	}
	// A new definition is served after some tenths of a second.
	manifests := poolManifests(l.cfg)
	if err := again(ctx, 100*time.Millisecond, func() error { return l.apply(ctx, "pools.yaml", manifests) }); err != nil {
		return err
	}
	progress(fmt.Sprintf("made %d NodePools and YurtCoordinators", l.cfg.Pools))
	objects, err := dynamic.NewForConfig(l.watch().access)
	if err != nil {
		return err
	}
	for p := 1; p <= l.cfg.Pools; p++ {
		if l.cfg.of(p).NoCoordinator {
			continue
		}
		name := string(poolName(p))
		err := again(ctx, 100*time.Millisecond, func() error {
			o, err := objects.Resource(YurtCoordinators).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return notReady(o)
		})
		if err != nil {
			return fmt.Errorf("YurtCoordinator %s: %w; see: yurtlab logs cloud coordinator-controller", name, err)
		}
		if _, err := l.access(ctx, p); err != nil { // kept in case the cloud is gone when somebody needs it
			return err
		}
		node, err := l.Coordinator(p)
		if err != nil {
			return err
		}
		progress(fmt.Sprintf("the coordinator of %s is Ready, on %s", name, node))
	}
	return nil
}

// notReady returns why a YurtCoordinator is not Ready; nil means that it is.
func notReady(o *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	var said []string
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if c["type"] == "Ready" && c["status"] == "True" {
			return nil
		}
		said = append(said, fmt.Sprintf("%v=%v %v: %v", c["type"], c["status"], c["reason"], c["message"]))
	}
	if len(said) == 0 {
		said = []string{"its status is empty: coordinator-controller has not seen it"}
	}
	return errors.New("it is not Ready: " + strings.Join(said, "; "))
}

// markControlPlane puts a control plane's label on the cloud's node. kubelet must not do this itself.
func (l *Lab) markControlPlane(ctx context.Context) error {
	patch := []byte(`{"metadata":{"labels":{"` + labelControlPlane + `":""}}}`)
	return again(ctx, 100*time.Millisecond, func() error {
		_, err := l.watch().client.CoreV1().Nodes().Patch(ctx, cloudMachine, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// again calls try until it succeeds. When ctx ends it returns the last error.
func again(ctx context.Context, every time.Duration, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if over := run.Pause(ctx, every); over != nil {
			return errors.Join(err, over)
		}
	}
}
