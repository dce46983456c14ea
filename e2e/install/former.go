package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
	"yurtcoordinator/internal/lab/wire"
)

var formerScenarios = []kit.Scenario{{
	Name: lab.Former + "-beside", Lab: formerLab(), Run: besideFormer,
	Doc: "Hubs of v0.1.0 under the present chart, with its coordinator and with a pinned one of v0.1.0, are upgraded one " +
		"after another, and one goes back. In each mixture a node is cut off: whoever leads, of whichever release, delegates " +
		"it, and `kubectl` works on site. No Pod restarts, no node is NotReady, and every client's watch is exact. In the end " +
		"a node dies, and the cloud notices it in time.",
}}

func formerLab() lab.Config {
	c := kit.OnePool.AsInstalled()
	c.Former = true
	return c
}

// mixture is a pool with parts of two releases.
type mixture struct {
	*kit.T
	// former are the nodes whose hubs are of the former release.
	former map[string]bool
	// coordinator says of which release the coordinator is.
	coordinator string
	audiences   []*kit.Audience
	// expired is how often clients on a node may have been told 410: once for each start of its hub.
	expired map[string]int
	// cuts are when nodes were cut off last, and cutOff the one that is.
	cuts   map[string]time.Time
	cutOff string
	pods   map[types.UID]kit.PodAt
	began  time.Time
}

// present stands for the release that is being tried.
const present = "ours"

func besideFormer(t *kit.T) {
	m := &mixture{
		T: t, former: map[string]bool{}, coordinator: present, expired: map[string]int{}, cuts: map[string]time.Time{},
	}
	for _, n := range t.Pool.Nodes() {
		m.former[n] = true
	}
	m.begin()
	spec := load.Spec{Services: 20, EndpointsEach: 10, Nodes: t.Pool.Nodes()}
	changes := m.watch(spec)

	m.cut(m.other(true))
	m.replace(m.other(true), false)
	m.lead(func(n string) bool { return !m.former[n] })
	m.cut(m.other(true))
	m.formerPlugin()

	m.pin(lab.FormerCoordinator())
	m.lead(func(n string) bool { return !m.former[n] })
	m.cut(m.other(true))
	for _, n := range t.Pool.Nodes() {
		if m.former[n] {
			m.replace(n, false)
		}
	}
	back := m.other(false)
	m.replace(back, true)
	m.lead(func(n string) bool { return n == back })
	m.cut(m.other(false))
	m.reportsWhatIsSo(back)
	doomed := m.other(false)

	t.Figure("changes", float64(t.End(changes)))
	m.unharmed()
	for _, a := range m.audiences {
		a.Judge(t, m.expired)
	}
	m.dies(doomed)
}

// begin waits for a pool that works, and runs Pods in it.
func (m *mixture) begin() {
	m.Pool.Settled(60 * time.Second)
	m.pods = m.DeployWeb()
	m.began = time.Now()
}

// watch has clients of all hubs watch what the pool shares, while it changes.
func (m *mixture) watch(spec load.Spec) *kit.Churn {
	m.audiences = []*kit.Audience{m.Record(kit.EndpointSlices), m.Record(kit.AllServices)}
	_, err := load.Services(m.Ctx, m.Cloud, spec)
	m.Must(err)
	for _, a := range m.audiences {
		m.Pool.Shared(30*time.Second, a.Name)
		a.Seat(m.T, m.Pool.Nodes())
	}
	return m.Churn(spec, 10)
}

// release names the release of a node's hub.
func (m *mixture) release(node string) string {
	if m.former[node] {
		return lab.Former
	}
	return present
}

// well waits until the pool works, whatever it is made of, and everybody has what it shares.
func (m *mixture) well() (leader string) {
	leader = m.Pool.Settled(60 * time.Second)
	for _, a := range m.audiences {
		m.Pool.Shared(60*time.Second, a.Name)
		a.CaughtUp(m.T, 60*time.Second)
	}
	return leader
}

// unharmed expects that no node and no Pod has suffered.
func (m *mixture) unharmed() {
	for _, n := range m.Pool.Nodes() {
		m.Must(m.Seen.NeverNotReady(n, m.began))
	}
	m.Must(m.Seen.Untouched(m.pods, m.began))
	m.Must(m.Seen.EndpointsKept(kit.Addresses(m.pods), m.began))
}

// other returns a node that does not lead, whose hub is of the former release or is not: the one whose link was cut the longest
// ago, since a taint that comes and goes often is damped.
func (m *mixture) other(former bool) string {
	leader := m.well()
	nodes := slices.DeleteFunc(m.Pool.Nodes(), func(n string) bool { return n == leader || m.former[n] != former })
	if len(nodes) == 0 {
		m.Fail("%s (%s) leads, and all others are of another release than is wanted", leader, m.release(leader))
	}
	return slices.MinFunc(nodes, func(a, b string) int { return m.cuts[a].Compare(m.cuts[b]) })
}

// lead has the lead pass on until a node has it that may.
func (m *mixture) lead(may func(node string) bool) {
	for range 10 {
		leader := m.well()
		if may(leader) {
			return
		}
		m.Say("%s (%s) is to lead no longer", leader, m.release(leader))
		m.expired[leader]++
		m.Must(m.Lab.Node(m.Ctx, lab.Kill, leader, lab.Hub))
		m.Eventually(20*time.Second, "another hub leads", func() error {
			l, err := m.Pool.Leader(m.Pool.Hubs())
			if err == nil && l == leader {
				return fmt.Errorf("%s still leads", l)
			}
			return err
		})
		m.Must(m.Lab.Node(m.Ctx, lab.Start, leader, lab.Hub))
	}
	m.Fail("the lead does not come to a node that may have it: %v", m.former)
}

// replace puts the other release's program in the place of a node's hub. It goes on with what that has left on the disk.
func (m *mixture) replace(node string, former bool) {
	lists := len(m.Pool.ListsOverWAN(kit.EndpointSlices.Resource))
	m.Say("the hub of %s is %s, and becomes the other", node, m.release(node))
	m.former[node] = former
	m.expired[node]++
	m.Must(m.Lab.RunHub(m.Ctx, node, former))
	m.Eventually(30*time.Second, "the hub of "+node+" serves from its disk", func() error {
		h, ok := m.Pool.Hubs()[node]
		if !ok {
			return errors.New("it does not answer")
		}
		if r, has := h.Replica(kit.EndpointSlices.Name); !has || r.Revision == 0 || h.Disk == nil || h.Disk.Error != "" {
			return fmt.Errorf("it says %+v", h)
		}
		return nil
	})
	if news := m.Pool.NewLists(kit.EndpointSlices.Resource, lists); len(news) > 0 {
		m.Fail("it has listed over the WAN what its disk has: %+v", news)
	}
}

// pin says of which release the pool's coordinator is to be, and waits until it is.
func (m *mixture) pin(tag string) {
	m.Say("the coordinator is to be of %q", tag)
	content := fmt.Sprintf(`{"apiVersion":%q,"kind":"PoolSettings","metadata":{"name":"pinned"},"spec":{"nodepoolSelector":{},`+
		`"coordinator":{"release":%q}}}`, lab.PoolSettings.GroupVersion(), tag)
	_, err := m.Cloud.Objects.Resource(lab.PoolSettings).Patch(m.Ctx, "pinned", types.ApplyPatchType, []byte(content),
		metav1.PatchOptions{FieldManager: "somebody"})
	m.Must(err)
	took := m.Eventually(2*time.Minute, "the coordinator is", func() error {
		pods, err := m.Pool.CoordinatorsIn(0)
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return fmt.Errorf("it has %d Pods", len(pods))
		}
		image := pods[0].Spec.Containers[0].Image
		if !kit.PodReady(&pods[0]) || !strings.HasSuffix(image, ":"+tag) {
			return fmt.Errorf("its Pod of %s: %+v", image, pods[0].Status.Conditions)
		}
		return m.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, "")
	})
	m.Figure("coordinator_replaced_s", took.Seconds())
	m.coordinator = tag
}

// cut cuts a node's WAN link for longer than Kubernetes takes to evict.
func (m *mixture) cut(node string) {
	leader := m.well()
	m.Say("CUT: %s (%s), %s (%s) leads, the coordinator is %s on %s",
		node, m.release(node), leader, m.release(leader), m.coordinator, m.Pool.CoordinatorNode())
	cut := time.Now()
	m.cuts[node], m.cutOff = cut, node
	m.Must(m.Lab.Cut(m.Ctx, lab.WAN, node, wire.Drop))
	m.Node(node).Delegated(cut)
	m.onSite()
	m.Hold(time.Until(cut.Add(m.Config.Timing.Grace+m.Config.Timing.Toleration+10*time.Second)), "longer than it takes to evict")
	for _, a := range m.audiences {
		a.CaughtUp(m.T, 60*time.Second)
	}
	m.unharmed()
	m.cutOff = ""
	healed := time.Now()
	m.Must(m.Lab.Heal(m.Ctx, lab.WAN, node))
	m.Node(node).Direct(healed)
	m.well()
	m.unharmed()
}

// onSite looks at the Pods with kubectl at the pool's coordinator, and into one on each node.
func (m *mixture) onSite() {
	var names []string
	for _, p := range m.pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	m.Eventually(30*time.Second, "kubectl shows all Pods on site", func() error {
		out, err := m.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
		shown := strings.Fields(out)
		slices.Sort(shown)
		if err == nil && !slices.Equal(shown, names) {
			err = fmt.Errorf("%v, want %v", shown, names)
		}
		return err
	})
	for _, p := range m.pods {
		m.entered(p)
	}
}

// entered enters a Pod on site. A former hub asks the cloud whether the coordinator's user may, and the cloud says no. While
// it is cut off the coordinator may say yes, unless the hub has the cloud's answer. A new hub knows the user.
func (m *mixture) entered(p kit.PodAt) {
	out, err := m.kubectl("exec", p.Name, "--", "hostname")
	switch refused := err != nil && strings.Contains(err.Error(), "Forbidden"); {
	case p.Node == m.cutOff && m.former[p.Node]:
		m.Say("exec on %s (%s), which is cut off: refused %t", p.Node, m.release(p.Node), refused)
	case m.former[p.Node]:
		if !refused {
			m.Fail("exec into a Pod on %s (%s), with a coordinator of %s: %q, %w; want a refusal",
				p.Node, m.release(p.Node), m.coordinator, out, err)
		}
	case err != nil || strings.TrimSpace(out) != p.Name:
		m.Fail("exec into %s on %s (%s), with a coordinator of %s: %q, %w",
			p.Name, p.Node, m.release(p.Node), m.coordinator, out, err)
	}
}

// formerPlugin looks at the cluster with the former release's plugin.
func (m *mixture) formerPlugin() {
	cmd, err := m.Lab.FormerPlugin(m.Ctx, "status")
	m.Must(err)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "p1") || !strings.Contains(string(out), "3/3") {
		m.Fail("the plugin of %s says %s: %w", lab.Former, out, err)
	}
	m.Say("the plugin of %s says\n%s", lab.Former, strings.TrimSpace(string(out)))
}

// reportsWhatIsSo expects that nobody takes what a newer leader has reported for the word of a former one, which leads.
func (m *mixture) reportsWhatIsSo(leader string) {
	for _, condition := range []v1alpha1.YurtCoordinatorConditionType{
		v1alpha1.YurtCoordinatorKubeletsVerifiable, v1alpha1.YurtCoordinatorResourcesComplete,
	} {
		m.Eventually(30*time.Second, string(condition)+" says that nobody reports it: "+leader+" leads", func() error {
			return m.Cloud.Condition("p1", condition, v1alpha1.ConditionUnknown, "NoReport")
		})
	}
}

// kubectl runs kubectl as an operator at the pool's coordinator.
func (m *mixture) kubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.Ctx, 15*time.Second)
	defer cancel()
	cmd, err := m.Lab.Kubectl(ctx, "coordinator/p1", args)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// dies cuts a node's power and expects that the cloud notices it in Kubernetes' own time, and that nobody renews its Lease.
func (m *mixture) dies(node string) {
	leader := m.Pool.Settled(60 * time.Second)
	m.Say("DEATH: %s (%s), %s (%s) leads, the coordinator is %s", node, m.release(node), leader, m.release(leader), m.coordinator)
	killed := time.Now()
	m.Must(m.Lab.Node(m.Ctx, lab.Kill, node, lab.All))
	took := m.Eventually(2*m.Config.Timing.Grace, node+" is NotReady", func() error {
		if m.Seen.Node(node).Ready == corev1.ConditionTrue {
			return errors.New("it is Ready")
		}
		return nil
	})
	m.Figure("death_to_not_ready_s", took.Seconds())
	onTheWay := killed.Add(m.Config.Timing.Lease / 4) // as old as a forwarder lets a heartbeat get
	if late := m.Seen.Renewals(node, onTheWay); len(late) > 0 {
		m.Fail("the Lease of %s, dead, was renewed %d times, last %.1fs after its death", node, len(late),
			late[len(late)-1].Sub(killed).Seconds())
	}
}
