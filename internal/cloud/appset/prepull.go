package appset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// A pool's new Pods may start on nodes that do not have their image, and a slow link takes long to pull it. So the nodes are
// chosen here, as the scheduler would; a Pod on each pulls the image; and then the new Pods prefer these nodes.

const (
	// appPull is the value of edge.LabelApp on Pods that pull an image. Their names begin with it too, and a policy demands
	// that: see controller-upgraders.yaml.
	appPull = "yurtappset-pull"
	// annotationPulls on such a Pod is what it pulls for: POOL/HASH, the hash of the pool's new Pods.
	annotationPulls = "apps.openyurt.io/pulls-for"
	// nobody is the user that they run as.
	nobody = 65532
	// nodesToCome is the number of nodes, at most, on which images are pulled for one pool's new Pods.
	nodesToCome = 10
)

// coming are the nodes that are to run a pool's new Pods.
type coming struct {
	nodes []string
	// pulls are the Pods that pull there; missing are those that have yet to be made.
	pulls   map[string]bool
	missing []*corev1.Pod
	// trouble says why no image comes.
	trouble string
}

// TakesPods reports whether a node can start Pods that tolerate nothing: it is heard from by itself, and open.
func TakesPods(n *corev1.Node) bool {
	shut := []string{
		corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, edge.TaintUnschedulable,
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && n.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(shut, t.Key) })
}

// look finds out whether the change of a pool can be carried out, and how far its images are.
func (r *rollout) look(ctx context.Context, i int) error {
	w, state := &r.wanted[i], &r.states[i]
	r.coming[i] = coming{}
	found := &corev1.PodList{}
	in := []client.ListOption{client.InNamespace(r.set.Namespace), client.MatchingLabels{LabelPoolName: w.Pool}}
	if err := r.cfg.Reader.List(ctx, found, in...); err != nil {
		return fmt.Errorf("list the Pods of pool %s: %w", w.Pool, err)
	}
	l := r.live[w.ref()]
	is, err := metav1.LabelSelectorAsSelector(l.selector)
	if err != nil {
		return fmt.Errorf("selector of %s %s: %w", w.Kind, w.Name, err)
	}
	nodes := r.nodes[w.Pool]
	for _, p := range found.Items {
		at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName })
		if is.Matches(labels.Set(p.Labels)) && at >= 0 && !TakesPods(&nodes[at]) {
			state.Away = true // its node does not hear that the Pod is to end
			return nil
		}
	}
	if r.set.Spec.Rollout.PrePull == nil || state.Health != Settled {
		return nil
	}
	spec, err := r.podsOf(i)
	if err != nil {
		return err
	}
	c, image := r.nodesFor(w, spec, int(l.Replicas), placesFor(spec, nodes, found.Items, is))
	r.coming[i], state.Image = c, image
	if image == Pulled {
		w.had.Nodes = c.nodes
		*w = newRenderer(r.set).render(r.selected.Pools[i], w.had)
	}
	return nil
}

// podsOf returns what a pool's new Pods are.
func (r *rollout) podsOf(i int) (*corev1.PodSpec, error) {
	w := &r.wanted[i]
	if w.Object == nil { // unchanged since the last rendering
		*w = Render(r.set, []*v1beta2.NodePool{r.selected.Pools[i]}, map[string]Had{w.Pool: w.had})[0]
	}
	typed := workloadOf(w.Kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.Object.Object, typed); err != nil {
		return nil, fmt.Errorf("pods of %s %s: %w", w.Kind, w.Name, err)
	}
	return &draftOf(typed).pods.Spec, nil
}

// nodesFor chooses the nodes for a pool's new Pods from places: at most one for each replica, first those where a pull has begun.
// It also returns how far the pulls of images on these nodes are.
func (r *rollout) nodesFor(w *Wanted, spec *corev1.PodSpec, replicas int, places []string) (c coming, is Image) {
	purpose, now := w.Pool+"/"+w.PodsHash, r.cfg.Clock.Now()
	begun := make(map[string]*corev1.Pod)
	for i := range r.pulls {
		p := &r.pulls[i]
		on := string(objects.PinnedTo(p))
		if p.Annotations[annotationPulls] == purpose && p.DeletionTimestamp == nil && slices.Contains(places, on) {
			begun[p.Name] = p
			places = slices.DeleteFunc(places, func(n string) bool { return n == on })
			places = slices.Insert(places, 0, on)
		}
	}
	c.nodes, c.pulls = places[:min(len(places), replicas, nodesToCome)], make(map[string]bool)
	if len(c.nodes) == 0 && replicas > 0 {
		c.trouble = "none of the pool's nodes could run its new Pods: see their nodeSelector, affinity and tolerations"
		return c, NotPullable
	}
	is = Pulled
	timeout := time.Duration(ptr.Deref(r.set.Spec.Rollout.PrePull.TimeoutSeconds, 1200)) * time.Second
	for _, node := range c.nodes {
		for _, image := range imagesOf(spec) {
			p := r.puller(purpose, w.Pool, node, image, spec, timeout)
			there := begun[p.Name]
			state, why := pulled(there)
			if why != "" {
				c.trouble = fmt.Sprintf("node %s does not get the image %s: %s", node, image.Image, why)
			}
			switch {
			case there == nil:
				c.missing = append(c.missing, p)
			case state != NotPullable || now.Sub(there.CreationTimestamp.Time) < timeout+mendAfter: // else it is made again
				c.pulls[p.Name] = true
			}
			if state == NotPullable || state != Pulled && is == Pulled {
				is = state
			}
		}
	}
	if is == NotPulled && len(begun) > 0 {
		is = Pulling
	}
	return c, is
}

// Places returns the nodes that could run a new Pod, the best first, with these Pods on them.
func Places(spec *corev1.PodSpec, nodes []corev1.Node, pods []corev1.Pod) []string {
	return placesFor(spec, nodes, pods, labels.Nothing())
}

// placesFor returns the nodes that could run new Pods, the best first. It goes by what the Pods ask for, and by the host ports
// that Pods of YurtAppSets have on the nodes. A node comes last if a Pod that will be replaced has a needed port, because that
// Pod has the port until it has ended.
func placesFor(spec *corev1.PodSpec, nodes []corev1.Node, pods []corev1.Pod, replaced labels.Selector) []string {
	needs := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	var prefers *nodeaffinity.PreferredSchedulingTerms
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		prefers, _ = nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	scores := make(map[string]int64)
	var names []string
	for i := range nodes {
		n := &nodes[i]
		_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations,
			func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
		fits, err := needs.Match(n)
		if err != nil || !fits || untolerated || !TakesPods(n) {
			continue
		}
		if prefers != nil {
			scores[n.Name] = prefers.Score(n)
		}
		taken := false
		for j := range pods {
			if p := &pods[j]; p.Spec.NodeName == n.Name && clash(&p.Spec, spec) {
				taken = taken || !replaced.Matches(labels.Set(p.Labels))
				scores[n.Name] = -1
			}
		}
		if !taken {
			names = append(names, n.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if scores[a] != scores[b] {
			return int(scores[b] - scores[a])
		}
		return strings.Compare(a, b)
	})
	return names
}

// clash reports whether two Pods can't be on one node, because both want a port of it.
func clash(a, b *corev1.PodSpec) bool {
	return slices.ContainsFunc(hostPorts(a), func(port int32) bool { return slices.Contains(hostPorts(b), port) })
}

func hostPorts(spec *corev1.PodSpec) (ports []int32) {
	for _, c := range spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				ports = append(ports, p.HostPort)
			}
		}
	}
	return ports
}

// imagesOf returns the containers of a Pod, one for each image.
func imagesOf(spec *corev1.PodSpec) (all []corev1.Container) {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if !slices.ContainsFunc(all, func(o corev1.Container) bool { return o.Image == c.Image }) {
			all = append(all, c)
		}
	}
	return all
}

// puller returns a Pod that pulls an image on a node. Its command exists in no image, so the container can't be started and
// nothing of the image runs. The image stays on the node. The Pod has no privileges, and mounts nothing.
func (r *rollout) puller(
	purpose, pool, node string, of corev1.Container, spec *corev1.PodSpec, timeout time.Duration,
) *corev1.Pod {
	name := digest([]byte(strings.Join([]string{string(r.set.UID), purpose, node, of.Image}, " ")), 16)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.set.Namespace, Name: appPull + "-" + name,
			Labels:      map[string]string{edge.LabelApp: appPull, LabelYurtAppSet: labelValue(r.set.Name)},
			Annotations: map[string]string{annotationPulls: purpose},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(r.set, v1beta1.GroupVersion.WithKind("YurtAppSet")),
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(int64(timeout / time.Second)),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken:  ptr.To(false), EnableServiceLinks: ptr.To(false),
			PriorityClassName: spec.PriorityClassName, ImagePullSecrets: spec.ImagePullSecrets,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "pull", Image: of.Image, ImagePullPolicy: of.ImagePullPolicy, Command: []string{"/only-pull"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
					},
					Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	objects.Pin(&p.Spec, edge.PoolName(pool), edge.NodeName(node))
	return p
}

// pulled says how far a Pod is that pulls an image; nil has not begun.
func pulled(p *corev1.Pod) (is Image, why string) {
	if p == nil {
		return NotPulled, ""
	}
	for _, c := range p.Status.ContainerStatuses {
		waits := ptr.Deref(c.State.Waiting, corev1.ContainerStateWaiting{})
		switch t := c.State.Terminated; {
		case t != nil && t.Reason != "ContainerStatusUnknown": // it could not be started: the image is there
			return Pulled, ""
		case waits.Reason == "CreateContainerError", waits.Reason == "RunContainerError":
			return Pulled, ""
		case waits.Reason != "" && waits.Reason != "ContainerCreating" && waits.Reason != "PodInitializing":
			why = cut(waits.Reason + ": " + waits.Message)
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return NotPullable, strings.TrimSpace("the pull has ended: " + p.Status.Reason + " " + p.Status.Message)
	}
	return Pulling, why
}

// readPulls reads the Pods that pull images for a YurtAppSet. They are not watched. After a start there may be some.
func (r *rollout) readPulls(ctx context.Context) error {
	r.mu.Lock()
	m := r.memoryLocked(client.ObjectKeyFromObject(r.set))
	none := m.noPulls
	r.mu.Unlock()
	if none && (r.set.Spec.Rollout == nil || r.set.Spec.Rollout.PrePull == nil) {
		return nil
	}
	settled := !slices.ContainsFunc(r.states, func(p PoolState) bool { return !p.Current && p.Health != Fresh })
	if none && settled {
		return nil
	}
	all := &corev1.PodList{}
	in := []client.ListOption{
		client.InNamespace(r.set.Namespace),
		client.MatchingLabels{edge.LabelApp: appPull, LabelYurtAppSet: labelValue(r.set.Name)},
	}
	if err := r.cfg.Reader.List(ctx, all, in...); err != nil {
		return fmt.Errorf("list the Pods that pull images for YurtAppSet %s: %w", r.set.Name, err)
	}
	r.pulls = slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, r.set) })
	return nil
}

// pull makes the Pods that are to pull images now, and removes those that are of no use any more.
func (r *rollout) pull(ctx context.Context) error {
	var failed []error
	keeps := make(map[string]bool)
	for i, c := range r.coming {
		if r.steps[i] != Pull {
			continue
		}
		for name := range c.pulls {
			keeps[name] = true
		}
		for _, p := range c.missing {
			keeps[p.Name] = true
			if err := r.cfg.Client.Create(ctx, p, client.FieldOwner(FieldOwner)); err != nil && !apierrors.IsAlreadyExists(err) {
				failed = append(failed, fmt.Errorf("pull images for pool %s: %w", r.wanted[i].Pool, err))
			}
		}
	}
	for i := range r.pulls {
		p := &r.pulls[i]
		if keeps[p.Name] || p.DeletionTimestamp != nil {
			continue
		}
		if err := r.cfg.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("remove Pod %s: %w", p.Name, err))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memoryLocked(client.ObjectKeyFromObject(r.set)).noPulls = len(keeps) == 0 && len(failed) == 0
	return errors.Join(failed...)
}
