package reading

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var exampleScenarios = []kit.Scenario{{
	Name: "examples", Tier: kit.Field, Lab: exampleLab(), Run: examples,
	Doc: "Each of the examples is applied in a cluster with two pools of two nodes, and does what it says. A pool gets a " +
		"coordinator, and another one beside it; a pool of two nodes gets one without being asked. The hubs of a metered link " +
		"probe it as often as the example says. A pool without a coordinator is held when all of it is cut off. A workload " +
		"runs in each shop with that shop's number of replicas, and a Service leads to its own pool's Pods alone.",
}}

func exampleLab() lab.Config {
	c := lab.Config{Pools: 2, Timing: lab.Quick}.AsInstalled()
	c.Nodes = 2
	return c
}

// examplesRun is what the examples are applied with.
type examplesRun struct {
	*kit.Reader
	applied []string
}

func examples(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	x := &examplesRun{Reader: t.NewReader()}
	x.Run("kubectl delete yurtcoordinators --all --timeout=50s")
	x.Run("kubectl label nodepool p2 link=lte")
	x.coordinators()
	x.metered()
	x.held()
	x.values()
	x.shops()

	files, err := filepath.Glob(filepath.Join(t.Repository(), "examples", "*.yaml"))
	t.Must(err)
	for _, file := range files {
		if !slices.Contains(x.applied, filepath.Base(file)) {
			t.Fail("examples/%s has not been applied", filepath.Base(file))
		}
	}
	t.Figure("examples", float64(len(x.applied)))
}

// apply applies an example, with words of the lab in place of its own, as pairs.
func (x *examplesRun) apply(name string, instead ...string) {
	x.Example(name, instead...)
	x.applied = append(x.applied, name)
	x.Say("examples/%s: %s", name, strings.ReplaceAll(strings.TrimSpace(x.Run("kubectl apply -f examples/"+name)), "\n", ", "))
}

// wait waits for conditions of objects.
func (x *examplesRun) wait(objects, condition string) {
	x.Run(fmt.Sprintf("kubectl wait %s --for=condition=%s --timeout=50s || { kubectl get %[1]s -o yaml; exit 1; }",
		objects, condition))
}

// coordinators: a pool has one, a pool of two nodes gets one because of its label, and the first pool then has two.
func (x *examplesRun) coordinators() {
	x.apply("pool.yaml", "hangzhou", "p1")
	x.wait("yurtcoordinator/p1", "Ready")

	x.apply("pool-of-two.yaml", "kiosk-17", "p2")
	x.Eventually(30*time.Second, "the pool of two has a coordinator without being asked", func() error {
		_, err := x.Cloud.YurtCoordinator("p2")
		return err
	})
	x.wait("yurtcoordinator/p2", "Ready")

	x.apply("standby.yaml", "factory", "p1")
	x.wait("yurtcoordinator/p1", "StandbysReady")
	var on []string
	for _, node := range x.Pool.CoordinatorsRunning() {
		if strings.HasPrefix(node, "p1-") {
			on = append(on, node)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(on)))) != 2 {
		x.Fail("coordinators of p1 run on %v, want two nodes", on)
	}
}

// metered: the hubs of the pools with that link say that they take it for one.
func (x *examplesRun) metered() {
	want := map[string]string{"p1-n1": "normal", "p1-n2": "normal", "p2-n1": "metered", "p2-n2": "metered"}
	x.apply("metered.yaml")
	x.Eventually(time.Minute, "the hubs of the metered pool do as it says, and no others", func() error {
		for node, profile := range want {
			status, err := x.Node(node).Fetch("http://127.0.0.1:10267/status")
			if err != nil {
				return err
			}
			if !strings.Contains(strings.ReplaceAll(status, " ", ""), `"linkProfile":"`+profile+`"`) {
				return fmt.Errorf("%s does not say that its link is %s", node, profile)
			}
		}
		return nil
	})
	if s := x.Run("kubectl get poolsettings lte -o jsonpath='{.status.nodes}'"); s != "2" {
		x.Fail("the PoolSettings is followed by %s nodes, want 2", s)
	}
}

// held: all of a pool without a coordinator is cut off, and is held because of the example alone.
func (x *examplesRun) held() {
	// Applied to that pool, it takes away the label because of which it has a coordinator.
	x.apply("hold-evictions.yaml", "warehouse", "p2")
	x.Eventually(time.Minute, "the pool has no coordinator", func() error {
		if _, err := x.Cloud.YurtCoordinator("p2"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it has: %w", err)
		}
		left, err := x.Cloud.OfPool("p2")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
	both := []string{"p2-n1", "p2-n2"}
	x.Say("cutting the WAN links of %v, silently", both)
	for _, node := range both {
		x.Cut(node)
	}
	x.wait("node/p2-n1 node/p2-n2", "EvictionsHeld")
	said := x.Run(`kubectl get node p2-n1 -o jsonpath='{.status.conditions[?(@.type=="EvictionsHeld")].message}'`)
	until, err := heldUntil(said)
	if left := time.Until(until); err != nil || left < 110*time.Minute || left > 2*time.Hour {
		x.Fail("p2-n1 is held for %v, want two hours: %s", left, said)
	}
	for _, node := range both {
		x.Heal(node)
	}
	x.wait("node/p2-n1 node/p2-n2", "EvictionsHeld=False")
	x.wait("node/p2-n1 node/p2-n2", "Ready")
}

// heldUntil returns the time until which evictions are held, as a Node's condition says it.
func heldUntil(message string) (time.Time, error) {
	_, rest, _ := strings.Cut(message, " until ")
	at, _, _ := strings.Cut(rest, ",")
	return time.Parse(time.RFC3339, at)
}

// values applies the example values.yaml. It expects that the chart takes the values, the controller runs with them, and a pool
// gets a coordinator that nobody has asked for. The lab's PoolSettings say that two nodes are enough.
func (x *examplesRun) values() {
	x.Example("values.yaml")
	x.applied = append(x.applied, "values.yaml")
	x.Run("helm upgrade --install yurt-coordinator dist/images/yurt-coordinator-*.tgz --namespace kube-system " +
		"--take-ownership --force-conflicts --values examples/values.yaml")
	x.Run("kubectl --namespace kube-system rollout status deployment coordinator-controller --timeout=50s")
	args := x.Run("kubectl --namespace kube-system get deployment coordinator-controller -o jsonpath='{..args}'")
	for _, want := range []string{"--hold-evictions=72h", `create\":\"Always`} {
		if !strings.Contains(args, want) {
			x.Fail("the controller runs with %s, want %s", args, want)
		}
	}
	x.Eventually(time.Minute, "every pool has a coordinator", func() error {
		_, err := x.Cloud.YurtCoordinator("p2")
		return err
	})
}

// shops: a workload in each shop, and a Service that leads to the shop's own.
func (x *examplesRun) shops() {
	x.Run("kubectl label nodepool p1 p2 kind=shop --overwrite")
	x.apply("topology.yaml")
	x.apply("workload-per-pool.yaml", "hangzhou", "p1", "registry.example/shop/till:1",
		kit.WebImage+"\n                command: [httpd, -f]")
	replicas := map[string]int{"p1": 3, "p2": 2}
	x.Eventually(2*time.Minute, "each shop has its replicas", func() error { return x.shopsHave(replicas) })
	for pool, n := range replicas {
		x.Eventually(30*time.Second, "clients in "+pool+" see the endpoints of their own pool alone", func() error {
			return x.endpointsAt(pool, n)
		})
	}
}

// shopsHave fails unless the example's Deployments have so many ready Pods, by pool.
func (x *examplesRun) shopsHave(want map[string]int) error {
	pods, err := x.Cloud.CoreV1().Pods(metav1.NamespaceDefault).List(x.Ctx, metav1.ListOptions{LabelSelector: "app=till"})
	if err != nil {
		return err
	}
	have := map[string]int{}
	for i := range pods.Items {
		if p := &pods.Items[i]; kit.PodReady(p) {
			pool, _, _ := strings.Cut(p.Spec.NodeName, "-")
			have[pool]++
		}
	}
	for pool, n := range want {
		if have[pool] != n {
			return fmt.Errorf("there are %v, want %v", have, want)
		}
	}
	return nil
}

// endpointsAt fails unless the hub of a pool's first node shows so many endpoints of the example's Service, all of that pool.
func (x *examplesRun) endpointsAt(pool string, want int) error {
	all, err := x.Node(pool+"-n1").Client().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(x.Ctx, metav1.ListOptions{
		LabelSelector: "kubernetes.io/service-name=till",
	})
	if err != nil {
		return err
	}
	n := 0
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			switch {
			case e.NodeName == nil:
				return errors.New("an endpoint has no node")
			case !strings.HasPrefix(*e.NodeName, pool+"-"):
				return fmt.Errorf("one is on %s", *e.NodeName)
			case e.Conditions.Ready != nil && *e.Conditions.Ready:
				n++
			}
		}
	}
	if n != want {
		return fmt.Errorf("there are %d, want %d", n, want)
	}
	return nil
}
