package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var openYurtScenarios = []kit.Scenario{{
	Name: "beside-openyurt", Tier: kit.Field, Lab: withOpenYurt(kit.OnePool.AsInstalled()), Run: besideOpenYurt,
	Pages: []kit.Reading{{Page: "docs/from-openyurt.md"}},
	Doc: "On a cluster with OpenYurt 1.7 ours is installed beside it with YurtAppSets of its own, takes its pools over and is " +
		"removed again, by the steps of `docs/from-openyurt.md`. A changed template of the coordinators is rolled out by ours, " +
		"beside it and in its place. No workload is doubled, no Pod is restarted, and no two controllers fight over a write.",
}}

func withOpenYurt(c lab.Config) lab.Config {
	c.OpenYurt = true
	return c
}

const (
	// labelEdgeWorker is OpenYurt's label of nodes that it looks after.
	labelEdgeWorker = "openyurt.io/is-edge-worker"
	// calmFor is how long nobody may write.
	calmFor = 30 * time.Second
	// settledFor is how long nothing changes before that: a new leader's first report comes some seconds after the rest.
	settledFor = 10 * time.Second
)

// What docs/from-openyurt.md says, step by step.
var (
	// backValues are those of step 7, for a yurt-manager with all of its controllers.
	backValues = []string{
		"--set=crds.nodepools=false,crds.yurtappsets=false",
		"--set=controllers.nodepool=false,controllers.yurtappset=false",
		"--set=controllers.yurtcoordinator=false,controllers.autonomy=false",
	}
	// theirsAlone are yurt-manager's controllers without ours, theirsBeside beside it, and theirsAfter when ours has the pools.
	theirsAlone       = "-nodelifecycle,-yurtnodeconversion,*"
	theirsBeside      = "-nodelifecycle,-yurtnodeconversion,-yurtappset,*"
	theirsAfter       = "-nodelifecycle,-yurtnodeconversion,-nodepool,-yurtappset,-podbinding,*"
	coordinatorOfPool = `apiVersion: apps.openyurt.io/v1alpha1
kind: YurtCoordinator
metadata: {name: p1}
spec: {nodePool: p1}
`
)

func besideOpenYurt(t *kit.T) {
	b := &beside{T: t, pidFile: filepath.Join(t.Lab.Dir(), "yurt-manager.pid")}
	b.takeAway()
	b.install()
	defer b.stop()
	had := b.runs()

	t.Say("installing ours beside it")
	r := t.NewReader()
	b.restart(theirsBeside)
	r.Read(fromOpenYurt("kubectl patch crd yurtappsets", "helm install"))
	t.Eventually(time.Minute, "the workloads are ours", func() error {
		for _, d := range b.workloads() {
			if d.Labels["apps.openyurt.io/yurtappset"] == "" {
				return fmt.Errorf("%s has %v", d.Name, d.Labels)
			}
		}
		return nil
	})
	b.apply("coordinator.yaml", coordinatorOfPool)
	b.ready()
	b.keeps()
	b.same(had)
	b.calm("both run")
	b.rollsOut(1)
	coordinator := t.Pool.CoordinatorPod()

	t.Say("moving the pools over")
	r.Read(fromOpenYurt("kubectl get crd"))
	b.restart(theirsAfter)
	r.Read(fromOpenYurt("kubectl patch crd nodepools", "helm upgrade --install"))
	b.same(had)
	b.ready()
	if now := t.Pool.CoordinatorPod(); now.UID != coordinator.UID || restarts(now) != restarts(coordinator) {
		t.Fail("the coordinator is %s now, was %s", now.Name, coordinator.Name)
	}
	b.calm("ours has the pools")
	b.rollsOut(2)
	b.oldAttributesGo()
	t.Kubectls([][]string{{"get", "nodepools.v1beta1.apps.openyurt.io", "p1"}})

	t.Say("taking ours away again")
	t.Kubectls([][]string{{"delete", "yurtcoordinators", "--all", "--timeout=1m"}})
	helm(t, "upgrade", append([]string{"--force-conflicts", "--wait", "--timeout=2m", "--reset-values"}, backValues...)...)
	t.Kubectls([][]string{{"replace", "-f", filepath.Join(b.charts(), "crds")}})
	b.restart(theirsAlone)
	helm(t, "uninstall", "--wait", "--timeout=5m")
	b.same(had)
	t.Kubectls([][]string{{"patch", "nodepool", "p1", "--type=merge",
		`--patch={"spec":{"labels":{"site":"here","again":"theirs"}}}`}})
	b.nodesHave("again", "theirs")
	b.same(had)
	b.calm("OpenYurt alone")
}

// fromOpenYurt returns commands of docs/from-openyurt.md.
func fromOpenYurt(begin ...string) kit.Reading {
	return kit.Reading{
		Page: "docs/from-openyurt.md", Only: begin, Instead: []string{"{shop,lights}", "{default}"},
		Notes: []kit.Note{
			{Begins: "helm ", Within: 3 * time.Minute},
			{Begins: "kubectl get crd", Prints: `nodepools\.apps\.openyurt\.io +\[v1beta\d\]`},
		},
	}
}

// beside is a cluster with OpenYurt.
type beside struct {
	*kit.T
	pidFile string
	running chan error
	log     *os.File
}

// takeAway leaves a cluster that has none of ours, except hubs on its nodes.
func (b *beside) takeAway() {
	r := b.NewReader()
	r.Read(beforeUninstall)
	helm(b.T, "upgrade", "--install", "--take-ownership", "--force-conflicts", "--wait", "--timeout=2m")
	helm(b.T, "uninstall", "--wait", "--timeout=5m")
	r.Read(cleanUp)
	b.Eventually(time.Minute, "nothing of ours is left", func() error { return leftAre(b.T, nil, true) })
}

// charts returns the directory of OpenYurt's chart.
func (b *beside) charts() string {
	charts, err := b.Lab.OpenYurtCharts(b.Ctx)
	b.Must(err)
	return filepath.Join(charts, "yurt-manager")
}

// manifests returns files of OpenYurt's chart as it renders them.
func (b *beside) manifests(pattern string) string {
	files, err := filepath.Glob(filepath.Join(b.charts(), pattern))
	b.Must(err)
	if len(files) == 0 {
		b.Fail("OpenYurt's chart has no %s", pattern)
	}
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		b.Must(err)
		all = append(all, strings.ReplaceAll(string(content), "{{ .Release.Namespace }}", edge.NamespaceSystem))
	}
	return strings.Join(all, "\n---\n")
}

func (b *beside) apply(name, manifests string) {
	path := filepath.Join(b.Lab.Dir(), name)
	b.Must(os.WriteFile(path, []byte(manifests), 0o600))
	b.Eventually(time.Minute, "the API server takes "+name, func() error {
		cmd, err := b.Lab.Kubectl(b.Ctx, "cloud", []string{"apply", "--server-side", "--force-conflicts", "-f", path})
		b.Must(err)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// install installs OpenYurt, with a pool and a YurtAppSet, and a node whose Pods it keeps.
func (b *beside) install() {
	// Nodes are edge workers when they join; OpenYurt's webhook lets nobody say so later.
	b.Kubectls([][]string{{"label", "nodes", "--all", labelEdgeWorker + "=true"}})
	b.Say("installing OpenYurt")
	b.apply("openyurt-crds.yaml", b.manifests("crds/*.yaml"))
	b.apply("openyurt.yaml", b.manifests("templates/yurt-manager-auto-generated.yaml"))
	b.apply("openyurt-certs.yaml",
		"{apiVersion: v1, kind: Secret, metadata: {name: yurt-manager-webhook-certs, namespace: kube-system}}")
	b.start(theirsAlone)
	b.apply("pool.yaml", `apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: p1}
spec: {type: Edge, interConnectivity: true, leaderReplicas: 1, labels: {site: here, old: "1"}}
`)
	// OpenYurt refuses the label of a pool that its cache has not seen yet.
	b.Eventually(time.Minute, "OpenYurt takes the nodes into the pool", func() error {
		for _, name := range b.Pool.Nodes() {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"p1"}}}`, edge.LabelNodePool)
			_, err := b.Cloud.CoreV1().Nodes().Patch(b.Ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	b.nodesHave("site", "here")
	b.apply("web.yaml", fmt.Sprintf(`apiVersion: apps.openyurt.io/v1beta1
kind: YurtAppSet
metadata: {name: web, namespace: default}
spec:
  nodepoolSelector: {}
  workload:
    workloadTemplate:
      deploymentTemplate:
        metadata: {labels: {app: web}}
        spec:
          replicas: 2
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec:
              containers:
              - {name: web, image: %q, command: [sleep, "100000"], env: [{name: POOL, value: none}]}
    workloadTweaks:
    - pools: [p1]
      tweaks:
        patches:
        - {path: /spec/template/spec/containers/0/env/0/value, operation: replace, value: "in-{{nodepool-name}}"}
`, kit.WebImage))
	// OpenYurt may make two Deployments for the pool, where its cache has not seen the first in time. That is none of ours.
	b.Eventually(2*time.Minute, "its Pods run, of one Deployment", func() error {
		of := b.deployments()
		if len(of) > 1 {
			b.Say("OpenYurt has made %d Deployments for one pool: all but one go", len(of))
			for _, name := range of[1:] {
				b.Must(b.Cloud.AppsV1().Deployments(kit.Namespace).Delete(b.Ctx, name, metav1.DeleteOptions{}))
			}
		}
		if n := len(b.runs()); n != 2 || len(of) != 1 {
			return fmt.Errorf("%d run, of %d Deployments", n, len(of))
		}
		return nil
	})
	b.Kubectls([][]string{{"annotate", "node", cloudNode(b.T), edge.AnnotationAutonomyDuration + "=1h"}})
}

func (b *beside) start(controllers string) {
	cmd, err := b.Lab.YurtManager(b.Ctx, b.pidFile, "--controllers="+controllers, "--working-namespace="+edge.NamespaceSystem)
	b.Must(err)
	b.log, err = os.OpenFile(filepath.Join(b.Lab.Dir(), "yurt-manager.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	b.Must(err)
	cmd.Stdout, cmd.Stderr = b.log, b.log
	b.Must(cmd.Start())
	b.running = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(cmd, b.running)
	b.Eventually(time.Minute, "yurt-manager is ready", func() error {
		select {
		case err := <-b.running:
			b.running = nil
			b.Fail("yurt-manager has ended: %v; see %s", err, b.log.Name())
		default:
		}
		probe, err := b.Lab.Inside(b.Ctx, "cloud", "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:10372/readyz")
		b.Must(err)
		if out, err := probe.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (b *beside) stop() {
	if b.running == nil {
		return
	}
	cmd, err := b.Lab.StopYurtManager(b.Ctx, b.pidFile)
	b.Must(err)
	_ = cmd.Run() // it may have ended
	if err := <-b.running; err != nil {
		b.Say("yurt-manager: %v", err)
	}
	b.running = nil
	b.Must(b.log.Close())
}

func (b *beside) restart(controllers string) {
	b.stop()
	b.start(controllers)
}

// ready waits for the coordinator.
func (b *beside) ready() {
	b.Eventually(3*time.Minute, "the coordinator is Ready, and its leader brings each change", func() error {
		return errors.Join(b.Cloud.Condition("p1", "Ready", "True", ""),
			b.Cloud.Condition("p1", "PoolResourcesCurrent", "True", ""))
	})
}

// rollsOut changes the template of the pool's coordinator, which the YurtAppSet's rollout brings to its Pod.
func (b *beside) rollsOut(verbosity int) {
	was := b.Pool.CoordinatorPod()
	b.apply("settings.yaml", fmt.Sprintf(`apiVersion: apps.openyurt.io/v1alpha1
kind: PoolSettings
metadata: {name: verbose}
spec: {pools: [p1], coordinator: {verbosity: %d}}
`, verbosity))
	b.Eventually(3*time.Minute, "the coordinator has the new template", func() error {
		app, err := b.Cloud.Objects.Resource(lab.NodePools.GroupVersion().WithResource("yurtappsets")).
			Namespace(edge.NamespaceSystem).Get(b.Ctx, edge.AppCoordinator, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if paces, _, _ := unstructured.NestedMap(app.Object, "spec", "rollout"); len(paces) == 0 {
			b.Fail("the coordinators' YurtAppSet has no rollout: %v", app.Object["spec"])
		}
		now := b.Pool.CoordinatorPod()
		if want := fmt.Sprintf("--v=%d", verbosity); now.UID == was.UID || !slices.Contains(now.Spec.Containers[0].Args, want) {
			return fmt.Errorf("%s has %v", now.Name, now.Spec.Containers[0].Args)
		}
		return b.Cloud.Condition("p1", "Reconciling", "False", "UpToDate")
	})
	b.ready()
}

// workloads are the Deployments of all YurtAppSets.
func (b *beside) workloads() []appsv1.Deployment {
	all, err := b.Cloud.AppsV1().Deployments("").List(b.Ctx, metav1.ListOptions{LabelSelector: "apps.openyurt.io/pool-name"})
	b.Must(err)
	return all.Items
}

// deployments are the names of those of the YurtAppSet web.
func (b *beside) deployments() (names []string) {
	for _, d := range b.workloads() {
		if d.Namespace == kit.Namespace {
			names = append(names, d.Name)
		}
	}
	return names
}

// runs returns the Pods of the YurtAppSet, with what must stay of each.
func (b *beside) runs() map[types.UID]string {
	pods, err := b.Cloud.CoreV1().Pods(kit.Namespace).List(b.Ctx, metav1.ListOptions{LabelSelector: "app=web"})
	b.Must(err)
	all := make(map[types.UID]string)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil && kit.PodReady(p) {
			all[p.UID] = fmt.Sprintf("%s on %s, restarted %d times, %s", p.Name, p.Spec.NodeName, restarts(p),
				p.Spec.Containers[0].Env[0].Value)
		}
	}
	return all
}

func restarts(p *corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// same fails unless the YurtAppSet has the one Deployment that it had, with the same Pods, in the same containers.
func (b *beside) same(had map[types.UID]string) {
	if len(had) != 2 {
		b.Fail("there were %v", had)
	}
	now := b.runs()
	for uid, what := range had {
		if now[uid] != what || !strings.HasSuffix(what, "in-p1") {
			b.Fail("%s is %q now", what, now[uid])
		}
	}
	names := b.deployments()
	if len(now) != len(had) || len(names) != 1 {
		b.Fail("there are %v, of the Deployments %v", now, names)
	}
}

func (b *beside) nodesHave(label, value string) {
	b.Eventually(time.Minute, "the pool's nodes have "+label+"="+value, func() error {
		for _, name := range b.Pool.Nodes() {
			if n := node(b.T, name); n.Labels[label] != value {
				return fmt.Errorf("%s has %v, %v", name, n.Labels, n.Annotations)
			}
		}
		return nil
	})
}

// oldAttributesGo takes a label out of the pool that OpenYurt has put on its nodes.
func (b *beside) oldAttributesGo() {
	b.Kubectls([][]string{{"patch", "nodepool", "p1", "--type=merge", `--patch={"spec":{"labels":{"old":null}}}`}})
	b.nodesHave("old", "")
	b.nodesHave("site", "here")
	pool, err := b.Cloud.Objects.Resource(lab.NodePools).Get(b.Ctx, "p1", metav1.GetOptions{})
	b.Must(err)
	if reaches, _, _ := unstructured.NestedBool(pool.Object, "spec", "interConnectivity"); !reaches {
		b.Fail("OpenYurt's fields of the NodePool are gone: %v", pool.Object["spec"])
	}
}

// intents are the resources that controllers of both sides write, and what of them does not change by itself.
var intents = map[schema.GroupVersionResource][]string{
	{Version: "v1", Resource: "nodes"}:                      {"spec"},
	{Version: "v1", Resource: "pods"}:                       {"spec"},
	{Group: "apps", Version: "v1", Resource: "deployments"}: {"spec", "status"},
	lab.NodePools: {"spec", "status"},
	lab.NodePools.GroupVersion().WithResource("yurtappsets"):                       {"spec", "status"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"}:                       {"spec", "status"},
	{Version: "v1", Resource: "services"}:                                          {"spec"},
	{Group: "apps.openyurt.io", Version: "v1alpha1", Resource: "yurtcoordinators"}: {"spec", "status"},
}

// intent is what of an object a write of a controller changes.
func intent(o *unstructured.Unstructured, parts []string) string {
	kept := map[string]any{
		"labels": o.GetLabels(), "annotations": o.GetAnnotations(), "finalizers": o.GetFinalizers(),
		"owners": o.GetOwnerReferences(),
	}
	for _, part := range parts {
		kept[part] = o.Object[part]
	}
	content, err := json.Marshal(kept)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// calm fails if a controller writes while nothing happens.
func (b *beside) calm(when string) {
	look := func() map[string]string {
		all := make(map[string]string)
		for resource, parts := range intents {
			list, err := b.Cloud.Objects.Resource(resource).List(b.Ctx, metav1.ListOptions{})
			if err != nil && strings.Contains(err.Error(), "could not find") {
				continue
			}
			b.Must(err)
			for i := range list.Items {
				o := &list.Items[i]
				all[resource.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = intent(o, parts)
			}
		}
		return all
	}
	var before map[string]string
	var since time.Time
	b.Eventually(2*time.Minute, "everything has settled", func() error {
		was := before
		before = look()
		if err := differ(was, before); was == nil || err != nil {
			since = time.Now()
			return fmt.Errorf("something has just changed: %w", err)
		}
		if still := time.Since(since); still < settledFor {
			return fmt.Errorf("nothing has changed for %v", still)
		}
		return nil
	})
	changes := 0
	for until := time.Now().Add(calmFor); time.Now().Before(until); {
		b.Pause(time.Second, "between two looks")
		now := look()
		if err := differ(before, now); err != nil {
			b.Say("%s: %v", when, err)
			changes++
		}
		before = now
	}
	b.Figure("changes_in_30s_"+strings.ReplaceAll(when, " ", "_"), float64(changes))
	if changes > 0 {
		b.Fail("%s: objects changed in %d of %v", when, changes, calmFor)
	}
}

// keeps waits until OpenYurt keeps the Pods of our controller, on the cloud's node, which is autonomous.
func (b *beside) keeps() {
	b.Eventually(time.Minute, "OpenYurt keeps the controller's Pods", func() error {
		pods, err := b.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(b.Ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=" + string(lab.CoordinatorController),
		})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			seconds := int64(0)
			for _, t := range p.Spec.Tolerations {
				if t.Key == corev1.TaintNodeUnreachable && t.TolerationSeconds != nil {
					seconds = *t.TolerationSeconds
				}
			}
			if p.Annotations[edge.AnnotationOriginalUnreachable] == "" || seconds != int64(time.Hour/time.Second) {
				return fmt.Errorf("%s has %v, %v", p.Name, p.Annotations, p.Spec.Tolerations)
			}
		}
		if len(pods.Items) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

func differ(was, is map[string]string) error {
	var all []string
	for name, content := range is {
		if before := was[name]; before != content {
			all = append(all, fmt.Sprintf("%s: %s", name, difference(before, content)))
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			all = append(all, name+" is gone")
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return errors.New(strings.Join(all[:min(len(all), 3)], "; "))
}

// difference shows where two texts begin to differ.
func difference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(s string) string { return s[max(0, min(i-40, len(s))):min(len(s), i+80)] }
	return fmt.Sprintf("%q is %q", bytes.TrimSpace([]byte(around(a))), around(b))
}
