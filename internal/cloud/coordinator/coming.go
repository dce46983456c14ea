package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// A new coordinator starts on another node of its pool, if there is one, because the old Pod holds the port until it has ended.
// The image must be on that node before. Otherwise the pool has no coordinator for as long as a slow link takes to pull it. The
// scheduler would choose the node; so we choose it first, and label it, and the coordinator prefers the label.

// comingState is how far the node is that is to run a coordinator next.
type comingState uint8

const (
	// notBegun says that nothing is done there.
	notBegun comingState = iota
	// pulling says that the image comes there.
	pulling
	// failed says that it does not come.
	failed
	// nowhere says that none of the pool's nodes could run the coordinator.
	nowhere
	// ready says that the image is there, or that it is nobody's business.
	ready
)

// coming is the node that is to run a coordinator next.
type coming struct {
	state comingState
	node  edge.NodeName
	image string
	// why is what its kubelet says.
	why string
}

// trouble says what somebody may have to mend; empty means nothing.
func (c coming) trouble() string {
	switch {
	case c.state == nowhere:
		return "none of the pool's nodes could run it as its settings say: see their nodeSelector and tolerations"
	case c.state == failed || c.state == pulling && c.why != "":
		return fmt.Sprintf("node %s does not get the image %s: %s", c.node, c.image, c.why)
	}
	return ""
}

// comingTo returns how far the node is that is to run a slot's coordinator as it is to be.
func (c Config) comingTo(v view, slot edge.Slot, wants shipment) coming {
	var spec corev1.PodSpec
	if err := json.Unmarshal([]byte(wants.spec), &spec); err != nil {
		return coming{state: nowhere}
	}
	at := ""
	if pod := v.crew.current[slot]; pod != nil {
		at = pod.Spec.NodeName
	}
	places := placesFor(&spec, v, slot, at)
	if len(places) == 0 {
		return coming{state: nowhere}
	}
	is := coming{node: edge.NodeName(places[0]), image: wants.image()}
	i := slices.IndexFunc(v.crew.pullers, func(p corev1.Pod) bool {
		return pulls(&p, slot, is.image) && slices.Contains(places, p.Spec.NodeName)
	})
	switch {
	case i >= 0: // once begun, it stays with that node
		is.node = edge.NodeName(v.crew.pullers[i].Spec.NodeName)
		is.state, is.why = pulled(&v.crew.pullers[i])
	case c.Rollout.PullTimeout == 0:
		is.state = ready
	}
	return is
}

// placesFor returns the nodes that could run a coordinator next, the best first. It filters and scores as the scheduler would,
// but looks at no other Pods than coordinators. The present node, at, counts only if there is no other, because the old Pod holds
// its port until it has ended.
func placesFor(spec *corev1.PodSpec, v view, slot edge.Slot, at string) []string {
	needs := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	var prefers *nodeaffinity.PreferredSchedulingTerms
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		prefers, _ = nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	scores := map[string]int64{}
	var names []string
	for i := range v.nodes {
		n := &v.nodes[i]
		_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations,
			func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
		if fits, err := needs.Match(n); err != nil || !fits || untolerated || !isPlace(n) || v.crew.taken(n.Name, slot) {
			continue
		}
		if prefers != nil {
			scores[n.Name] = prefers.Score(n)
		}
		names = append(names, n.Name)
	}
	if len(names) > 1 {
		names = slices.DeleteFunc(names, func(name string) bool { return name == at })
	}
	slices.SortFunc(names, func(a, b string) int {
		if scores[a] != scores[b] {
			return int(scores[b] - scores[a])
		}
		return strings.Compare(a, b)
	})
	return names
}

const (
	// appPull is the value of edge.LabelApp on Pods that pull a coordinator's image.
	appPull = "yurt-coordinator-pull"
	// prefixPull begins their names, which a policy holds this controller to: see controller-upgraders.yaml.
	prefixPull = "yurt-coordinator-pull-"
	// annotationPullsFor on such a Pod is the slot that it pulls for.
	annotationPullsFor = "openyurt.io/coordinator-pull-slot"
	// reasonStartError and reasonUnknown are kubelet's: the program of an image can't be started; a container never was.
	reasonStartError, reasonUnknown = "StartError", "ContainerStatusUnknown"
)

// pullerName returns the name of the Pod that pulls on a node.
func pullerName(n edge.NodeName) string {
	const most = 253
	if name := prefixPull + string(n); len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(n))
	return prefixPull + hex.EncodeToString(sum[:])
}

// puller returns the Pod that pulls the image of a slot's coordinator on the node that is to run it. The Pod runs the
// coordinator's program with --version and exits. It has no privileges, and mounts nothing of the node. The image stays on the
// node.
func (c Config) puller(o owner, pool edge.PoolName, slot edge.Slot, to coming) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: pullerName(to.node),
			Labels: map[string]string{
				edge.LabelApp: appPull, edge.LabelNodePool: string(pool), labelManagedBy: FieldOwner,
			},
			Annotations: map[string]string{annotationPullsFor: strconv.Itoa(int(slot))},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "YurtCoordinator", Name: o.Name, UID: o.UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      string(to.node),
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(max(1, int64(c.Rollout.PullTimeout/time.Second))),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			PriorityClassName:             priorityClass,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nonroot), RunAsGroup: ptr.To[int64](nonroot),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: to.image, ImagePullPolicy: c.PullPolicy,
				Command: []string{program}, Args: []string{"--version"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
					},
					Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("160Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	for _, name := range c.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return p
}

// isPuller reports whether this controller made a Pod to pull an image. A kubelet can create Pods of any name and labels, but
// none that a YurtCoordinator controls.
func isPuller(p *corev1.Pod) bool {
	o := metav1.GetControllerOf(p)
	return p.Labels[edge.LabelApp] == appPull && o != nil && o.Kind == "YurtCoordinator" &&
		o.APIVersion == v1alpha1.GroupVersion.String()
}

// pulls reports whether a Pod pulls this image for a slot's coordinator.
func pulls(p *corev1.Pod, slot edge.Slot, image string) bool {
	return p.Annotations[annotationPullsFor] == strconv.Itoa(int(slot)) && imageOf(p) == image && p.DeletionTimestamp == nil
}

// pulled says how far a puller is. Once its container has run, the image is there, whatever the program made of its flag.
func pulled(p *corev1.Pod) (is comingState, why string) {
	for _, c := range p.Status.ContainerStatuses {
		t := c.State.Terminated
		switch {
		case t == nil:
		case t.Reason == reasonStartError:
			return failed, "the image is there, and its program can't be started: " + short(t.Message)
		case t.Reason != reasonUnknown && !t.StartedAt.IsZero():
			return ready, ""
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		why = "it took longer than it may"
		if p.Status.Reason != "DeadlineExceeded" && p.Status.Message != "" {
			why = short(p.Status.Message)
		}
		return failed, why
	}
	return pulling, waitsFor(p)
}

// short bounds what somebody says.
func short(text string) string {
	if len(text) > maxSaid {
		text = text[:maxSaid] + "…"
	}
	return text
}

// pullAgain is when a puller that has failed makes room for the next, in times of how long it may take.
const pullAgain = 4. / 3

// spent reports whether a puller is of no use any more: nobody waits for its image in this slot, or it has failed long ago.
func (c Config) spent(p *corev1.Pod, all []decided, now time.Time) bool {
	state, _ := pulled(p)
	most := time.Duration(pullAgain * float64(c.Rollout.PullTimeout))
	if state == failed && now.Sub(p.CreationTimestamp.Time) > most {
		return true
	}
	return !slices.ContainsFunc(all, func(d decided) bool {
		needs := d.had != d.wants && !d.turn.none || !d.settled
		return d.pool == poolOf(p) && needs && pulls(p, d.slot, d.wants.image()) &&
			(d.coming.node == "" || string(d.coming.node) == p.Spec.NodeName)
	})
}
