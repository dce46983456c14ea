package cloud

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"yurtcoordinator/deploy"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// Two pools: kube-controller-manager evicts nothing if no node at all is Ready, or if more than half of them are not.
var poolCutScenarios = []kit.Scenario{
	{
		Name: "pool-cut-hold", Run: poolCutHold,
		Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick, NoCoordinator: true, NoProxy: true},
		Doc: "All links of a pool are cut. Its Pods are kept until the pool heals, the time is over or one node reports. A " +
			"pool with a coordinator is held by default, until somebody releases it, and not if it opts out.",
	},
	{
		Name: "hold-blip", Run: holdBlip, Lab: lab.Config{Pools: 2, Nodes: 3, Timing: shortened(), NoProxy: true},
		Doc: "All links of a pool are cut, and it is held. They are back for some seconds, until a heartbeat comes through, " +
			"and cut for an hour: it is held until the same time as before, and no Pod is evicted. All times are a tenth.",
	},
}

// shorter is the factor by which all times of hold-blip are shorter than Kubernetes' own and ours.
const shorter = 10

func shortened() lab.Timing {
	s := lab.Stock
	s.Toleration = 5 * time.Minute
	for _, d := range []*time.Duration{&s.Lease, &s.Report, &s.Grace, &s.Monitor, &s.Toleration} {
		*d /= shorter
	}
	return s
}

const (
	siteName = "site" // the Deployment of the pool

	// promptness is how late a taint or an eviction may come. kube-controller-manager looks only at intervals, and many
	// programs share the machine.
	promptness = 4 * time.Second
)

// newPoolCut prepares the cloud and the first pool for cuts.
func newPoolCut(t *kit.T) *poolCut {
	// Its own rate is one node in 10 s, which would hide ours.
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeControllerManager, "--node-eviction-rate=10"))
	applyYAML(t, deploy.HoldEvictions)
	applyYAML(t, deploy.HoldDuration)
	c := &poolCut{t}
	c.deploySite()
	return c
}

func poolCutHold(t *kit.T) {
	c := newPoolCut(t)
	t.Eventually(20*time.Second, "a duration that can't be read is refused", func() error {
		if err := annotatePool(t, "two hours", metav1.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	c.heals()
	c.timeIsOver()
	c.oneSpeaks()
	c.coordinated()
	c.byDefault()
	c.optedOut()
}

// heals: nothing happens to a Pod in a cut that is long for Kubernetes but short for the hold.
func (c *poolCut) heals() {
	c.Must(annotatePool(c.T, "10m"))
	pods := c.victims()
	cut := c.cutAll()
	heldBy := c.allHeld(cut, "cut_to_held_s")
	c.Hold(time.Until(cut.Add(c.Config.Timing.Grace)), "until after the first node can be NotReady")
	c.Eventually(10*time.Second, "all nodes are NotReady", func() error {
		for _, node := range c.Pool.Nodes() {
			at, was := c.Seen.FirstNode(node, cut, func(h kit.NodeAt) bool { return h.Ready == corev1.ConditionUnknown })
			if !was {
				return fmt.Errorf("%s is Ready", node)
			}
			c.FigureOnce("held_before_not_ready_s", at.Sub(heldBy).Seconds())
		}
		return nil
	})
	saysEvent(c.T, "WholePoolCut", cut)
	c.Say("restarting kube-controller-manager and coordinator-controller")
	c.Must(c.Lab.Cloud(c.Ctx, lab.Restart, lab.KubeControllerManager, "--node-eviction-rate=10"))
	c.Must(c.Lab.Cloud(c.Ctx, lab.Restart, lab.CoordinatorController))
	c.Hold(time.Until(cut.Add(3*(c.Config.Timing.Grace+c.Config.Timing.Toleration))),
		"three times the time in which Kubernetes evicts")
	for _, node := range c.Pool.Nodes() {
		if h := c.Seen.Node(node); h.Held != corev1.ConditionTrue || h.Ready != corev1.ConditionUnknown {
			c.Fail("%s is %+v, want it NotReady and held", node, h)
		}
	}
	c.neverTainted(cut, c.Pool.Nodes()...)
	c.kept(pods, cut)

	healed := c.healAll()
	c.Eventually(c.Config.Timing.Grace+20*time.Second, "all nodes are Ready and not held", func() error { return c.allWell() })
	c.Figure("heal_to_well_s", time.Since(healed).Seconds())
	saysEvent(c.T, "PoolSpeaks", healed)
	c.Hold(c.Config.Timing.Grace, "a grace period more: the healing evicts nobody")
	c.neverTainted(cut, c.Pool.Nodes()...)
	c.kept(pods, cut)
}

// holdBlip: one heartbeat that slips through is no state (ADR 72).
func holdBlip(t *kit.T) {
	c := newPoolCut(t)
	t.Must(annotatePool(t, (24 * time.Hour / shorter).String()))
	pods := c.victims()
	cut := c.cutAll()
	c.allHeld(cut, "cut_to_held_s")
	t.Hold(2*t.Config.Timing.Grace, "all are held, and NotReady")
	until := t.Seen.Node(t.Pool.Nodes()[0]).HeldSays
	blip := c.healAll()
	t.Eventually(time.Minute, "a heartbeat comes through", func() error {
		for _, node := range t.Pool.Nodes() {
			if len(t.Seen.Renewals(node, blip)) > 0 {
				return nil
			}
		}
		return errors.New("nobody is heard")
	})
	t.Figure("blip_s", c.cutAll().Sub(blip).Seconds())
	t.Hold(time.Hour/shorter, "an hour")
	for _, node := range t.Pool.Nodes() {
		if h := t.Seen.Node(node); !held(h) || h.HeldSays != until {
			t.Fail("%s is %+v, want it held as before: %s", node, h, until)
		}
	}
	c.neverTainted(cut, t.Pool.Nodes()...)
	c.kept(pods, cut)
	c.healAll()
	c.Eventually(time.Minute, "all nodes are Ready and not held", func() error { return c.allWell() })
	t.Hold(2*t.Config.Timing.Grace, "the healing evicts nobody")
	c.neverTainted(cut, t.Pool.Nodes()...)
	c.kept(pods, cut)
}

// timeIsOver: then Kubernetes takes its own course, in its own time.
func (c *poolCut) timeIsOver() {
	const length = 20 * time.Second
	c.Must(annotatePool(c.T, length.String()))
	pods := c.victims()
	cut := c.cutAll()
	c.allHeld(cut, "cut_to_held_s")
	over := time.Time{}
	c.Eventually(length+10*time.Second, "the hold is over", func() error {
		for _, node := range c.Pool.Nodes() {
			at, was := c.Seen.FirstNode(node, cut, func(h kit.NodeAt) bool { return h.HeldWhy == "HoldExpired" })
			if !was {
				return fmt.Errorf("%s is %+v", node, c.Seen.Node(node))
			}
			over = at
		}
		return nil
	})
	c.evicted(pods, over, "over")
	for _, node := range c.Pool.Nodes() {
		if at, was := c.Seen.FirstNode(node, cut, evicts); !was || at.Before(over.Add(-time.Second)) {
			c.Fail("%s was tainted at %v, the hold was over at %v", node, at, over)
		}
	}
	saysEvent(c.T, "HoldExpired", cut)
	c.healAll()
	c.Eventually(60*time.Second, "all nodes are Ready and not held", func() error { return c.allWell() })
}

// oneSpeaks: the others get a grace period, and then count as dead.
func (c *poolCut) oneSpeaks() {
	c.Must(annotatePool(c.T, "10m"))
	pods := c.victims()
	cut := c.cutAll()
	c.allHeld(cut, "cut_to_held_s")
	c.Hold(time.Until(cut.Add(c.Config.Timing.Grace+c.Config.Timing.Toleration)), "all are held")
	c.neverTainted(cut, c.Pool.Nodes()...)
	speaking, others := c.Pool.Nodes()[0], c.Pool.Nodes()[1:]
	healed := c.Heal(speaking)
	over := time.Time{}
	c.Eventually(c.Config.Timing.Grace+20*time.Second, "the others are not held any more", func() error {
		for _, node := range others {
			at, was := c.Seen.FirstNode(node, healed, func(h kit.NodeAt) bool { return h.HeldWhy == "OtherNodesSpeak" })
			if !was {
				return fmt.Errorf("%s is %+v", node, c.Seen.Node(node))
			}
			over = at
		}
		return nil
	})
	c.Figure("spoke_to_released_s", over.Sub(healed).Seconds())
	for _, node := range others {
		c.evicted(kit.On(pods, node), over, "spoke")
	}
	c.neverTainted(cut, speaking)
	c.kept(kit.On(pods, speaking), cut)
	c.healAll()
	c.Eventually(60*time.Second, "all nodes are Ready and not held", func() error { return c.allWell() })
}

// coordinated makes coordinator-controller believe that the pool has a coordinator: a YurtCoordinator with the finalizer that
// means that something was made for it. In this lab nothing is made, because kinds that the controller needs are missing.
// standby-installed has a real coordinator.
func (c *poolCut) coordinated() {
	applyYAML(c.T, deploy.YurtCoordinators)
	yc := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodePool": "p1"}}}
	yc.SetAPIVersion(lab.YurtCoordinators.GroupVersion().String())
	yc.SetKind("YurtCoordinator")
	yc.SetName("p1")
	yc.SetFinalizers([]string{edge.FinalizerCoordinator})
	c.Eventually(20*time.Second, "YurtCoordinators are served", func() error {
		_, err := c.Cloud.Objects.Resource(lab.YurtCoordinators).Create(c.Ctx, yc, metav1.CreateOptions{})
		return err
	})
	c.Must(c.Lab.Cloud(c.Ctx, lab.Restart, lab.CoordinatorController, "--yurt-coordinators=true",
		"--coordinator-image=registry.example.org/yurt-coordinator", "--coordinator-version=v1.0.0"))
}

// byDefault: a pool that has a coordinator is held though nobody asks for it, until somebody says that its site is dead.
func (c *poolCut) byDefault() {
	c.Must(annotatePool(c.T, ""))
	c.Hold(c.Config.Timing.Grace, "coordinator-controller sees the nodes alive")
	pods := c.victims()
	cut := c.cutAll()
	c.allHeld(cut, "default_cut_to_held_s")
	c.Hold(time.Until(cut.Add(3*(c.Config.Timing.Grace+c.Config.Timing.Toleration))),
		"three times the time in which Kubernetes evicts")
	c.neverTainted(cut, c.Pool.Nodes()...)
	c.kept(pods, cut)
	for _, node := range c.Pool.Nodes() {
		if h := c.Seen.Node(node); h.Held != corev1.ConditionTrue || !strings.Contains(h.HeldSays, "until") {
			c.Fail("%s says %+v, want that it is held, and until when", node, h)
		}
	}
	let := time.Now()
	c.Must(annotatePool(c.T, "0s"))
	c.evictedEach(pods, c.allTainted(let, "let_go_to_taint_s"), "let_go")
	saysEvent(c.T, "HoldWithdrawn", let)
	c.healAll()
	c.Eventually(60*time.Second, "all nodes are Ready and not held", func() error { return c.allWell("HoldWithdrawn") })
}

// optedOut cuts a pool that has a coordinator and opts out. It shows that the rest of this scenario could fail.
func (c *poolCut) optedOut() {
	c.Must(annotatePool(c.T, "0s"))
	pods := c.victims()
	cut := c.cutAll()
	lost := c.allTainted(cut, "plain_cut_to_taint_s")
	for _, node := range c.Pool.Nodes() {
		if at, was := c.Seen.FirstNode(node, cut, held); was {
			c.Fail("%s was held %.1fs after the cut, and its pool opts out", node, at.Sub(cut).Seconds())
		}
	}
	c.evictedEach(pods, lost, "plain")
	c.healAll()
	c.Eventually(60*time.Second, "all nodes are Ready and not held", func() error { return c.allWell("HoldWithdrawn") })
}

// allTainted waits until all nodes of the pool are tainted, and returns when each was: up to some seconds apart.
func (c *poolCut) allTainted(since time.Time, figure string) map[string]time.Time {
	c.Eventually(c.Config.Timing.Grace+15*time.Second, "all nodes are tainted", func() error {
		for _, node := range c.Pool.Nodes() {
			if !c.Seen.Node(node).Evicts {
				return fmt.Errorf("%s is not", node)
			}
		}
		return nil
	})
	lost := map[string]time.Time{}
	for _, node := range c.Pool.Nodes() {
		lost[node], _ = c.Seen.FirstNode(node, since, evicts)
		c.FigureOnce(figure, lost[node].Sub(since).Seconds())
	}
	return lost
}

// poolCut is the scenario.
type poolCut struct{ *kit.T }

func evicts(n kit.NodeAt) bool { return n.Evicts }
func held(n kit.NodeAt) bool   { return n.Held == corev1.ConditionTrue }

func (c *poolCut) cutAll() time.Time {
	c.Say("cutting all WAN links of the pool, silently")
	cut := c.Cut("pool/p1")
	return cut
}

func (c *poolCut) healAll() time.Time {
	c.Say("healing all links")
	healed := c.Heal("pool/p1")
	return healed
}

// allHeld waits until all nodes of the pool are held, and returns when the last one was.
func (c *poolCut) allHeld(cut time.Time, figure string) time.Time {
	last := cut
	c.Eventually(c.Config.Timing.Grace, "all nodes of the pool are held", func() error {
		for _, node := range c.Pool.Nodes() {
			at, was := c.Seen.FirstNode(node, cut, held)
			if !was {
				return fmt.Errorf("%s is %+v", node, c.Seen.Node(node))
			}
			if at.After(last) {
				last = at
			}
		}
		return nil
	})
	c.Figure(figure, last.Sub(cut).Seconds())
	return last
}

// allWell fails unless all nodes of the pool are Ready, not held and not tainted. Some say why they are no longer held.
func (c *poolCut) allWell(why ...string) error {
	for _, node := range c.Pool.Nodes() {
		h := c.Seen.Node(node)
		if h.Ready != corev1.ConditionTrue || h.Held == corev1.ConditionTrue || h.Evicts ||
			h.HeldWhy != "" && h.HeldWhy != "NodeSpeaks" && !slices.Contains(why, h.HeldWhy) {
			return fmt.Errorf("%s is %+v", node, h)
		}
	}
	return nil
}

// neverTainted expects that no taint on these nodes has evicted Pods since then.
func (c *poolCut) neverTainted(since time.Time, nodes ...string) {
	for _, node := range nodes {
		if at, was := c.Seen.FirstNode(node, since, evicts); was {
			c.Fail("%s was tainted %.1fs after the cut", node, at.Sub(since).Seconds())
		}
	}
}

// kept expects that none of these Pods was deleted or restarted since then. They are not Ready.
func (c *poolCut) kept(pods map[types.UID]kit.PodAt, since time.Time) {
	if len(pods) == 0 {
		c.Fail("there is no Pod to keep")
	}
	for uid, before := range pods {
		for _, p := range c.Seen.OfPod(uid) {
			if p.At.After(since) && (p.Ends() || p.Restarts != before.Restarts) {
				c.Fail("the Pod %s on %s was deleted or restarted %.1fs after the cut", p.Name, p.Node, p.At.Sub(since).Seconds())
			}
		}
	}
	c.Say("%d Pods were neither deleted nor restarted", len(pods))
}

// evicted expects that each of these Pods is evicted after its own time, and not before.
func (c *poolCut) evicted(pods map[types.UID]kit.PodAt, from time.Time, figure string) {
	if len(pods) == 0 {
		c.Fail("there is no Pod to evict")
	}
	for uid, before := range pods {
		own := c.tolerates(before.Name)
		var at time.Time
		c.Eventually(own+promptness+10*time.Second, "the Pod "+before.Name+" is evicted", func() error {
			for _, p := range c.Seen.OfPod(uid) {
				if p.Ends() {
					at = p.At
					return nil
				}
			}
			return errors.New("it is not")
		})
		took := at.Sub(from)
		if took < own-promptness/2 || took > own+promptness {
			c.Fail("the Pod %s was evicted after %.1fs, want %v", before.Name, took.Seconds(), own)
		}
		c.Figure(figure+"_eviction_late_s", (took - own).Seconds())
	}
}

// evictedEach expects of the Pods of each node that they are evicted after their own time from its own.
func (c *poolCut) evictedEach(pods map[types.UID]kit.PodAt, from map[string]time.Time, figure string) {
	for node, at := range from {
		if on := kit.On(pods, node); len(on) > 0 {
			c.evicted(on, at, figure)
		}
	}
}

// tolerates returns how long a Pod of victims tolerates the loss of its node.
func (c *poolCut) tolerates(name string) time.Duration {
	switch name {
	case "impatient":
		return 0
	case "brief":
		return 2 * time.Second
	}
	return c.Config.Timing.Toleration
}

// deploySite deploys a Pod for each node of the pool, with Kubernetes' default tolerations.
func (c *poolCut) deploySite() {
	labels := map[string]string{"app": siteName}
	_, err := c.Cloud.AppsV1().Deployments(kit.Namespace).Create(c.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: siteName},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(c.Config.Nodes)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{edge.LabelNodePool: "p1"}, TerminationGracePeriodSeconds: ptr.To[int64](1),
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					Containers: []corev1.Container{{Name: siteName, Image: kit.WebImage, Command: []string{"sleep", "1000000"}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	c.Must(err)
}

// victims returns the Pods of the pool once all exist and are ready: the Deployment's Pods, one Pod that does not tolerate the
// loss of its node, and one that tolerates it briefly.
func (c *poolCut) victims() map[types.UID]kit.PodAt {
	there := map[string]bool{}
	for _, p := range c.Seen.LivePods() {
		there[p.Name] = true
	}
	if !there["impatient"] {
		c.makePod("impatient", "p1-n2")
	}
	if !there["brief"] {
		c.makePod("brief", "p1-n3")
	}
	var pods map[types.UID]kit.PodAt
	c.Eventually(90*time.Second, "all Pods of the pool are ready", func() error {
		pods = map[types.UID]kit.PodAt{}
		for _, node := range c.Pool.Nodes() {
			for uid, p := range kit.On(c.Seen.LivePods(), node) {
				if !p.Ready {
					return fmt.Errorf("the Pod %s is not ready", p.Name)
				}
				pods[uid] = p
			}
		}
		if len(pods) != c.Config.Nodes+2 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	return pods
}

// makePod makes a Pod as soon as an earlier one of that name is gone.
func (c *poolCut) makePod(name, node string) {
	seconds := int64(c.tolerates(name) / time.Second)
	c.Eventually(60*time.Second, "the former Pod "+name+" is gone", func() error {
		_, err := c.Cloud.CoreV1().Pods(kit.Namespace).Get(c.Ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
	barePod(c.T, name, node, seconds)
}

// annotatePool sets how long evictions are held; an empty text removes that.
func annotatePool(t *kit.T, text string, options ...string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, edge.AnnotationHoldEvictions, text)
	if text == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, edge.AnnotationHoldEvictions)
	}
	_, err := t.Cloud.Objects.Resource(lab.NodePools).Patch(t.Ctx, "p1", types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: options})
	return err
}

// saysEvent waits until an Event on the NodePool, no older than since, has this reason.
func saysEvent(t *kit.T, reason string, since time.Time) {
	t.Eventually(20*time.Second, "the Event "+reason+" is on the NodePool", func() error {
		events, err := t.Cloud.EventsV1().Events(corev1.NamespaceDefault).List(t.Ctx, metav1.ListOptions{})
		t.Must(err)
		for _, e := range events.Items {
			if e.Regarding.Kind == "NodePool" && e.Regarding.Name == "p1" && e.Reason == reason &&
				e.EventTime.After(since.Add(-time.Second)) {
				return nil
			}
		}
		return fmt.Errorf("it is not among %d Events", len(events.Items))
	})
}

// applyYAML makes the policies, or the definitions of kinds, in a file.
func applyYAML(t *kit.T, content []byte) {
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		t.Must(err)
		o := &unstructured.Unstructured{}
		t.Must(yaml.Unmarshal(doc, &o.Object))
		resource := schema.GroupVersionResource{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
		}
		switch o.GetKind() {
		case "ValidatingAdmissionPolicyBinding":
			resource.Resource = "validatingadmissionpolicybindings"
		case "CustomResourceDefinition":
			resource.Group, resource.Resource = "apiextensions.k8s.io", "customresourcedefinitions"
		}
		_, err = t.Cloud.Objects.Resource(resource).Create(t.Ctx, o, metav1.CreateOptions{})
		t.Must(err)
	}
}
