package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// Labels do not make a Pod the coordinator. A kubelet may create a mirror Pod of any name and labels in any namespace, and so
// lead the pool's hubs and operators to its own machine. But it can't choose the owner: Kubernetes lets only its Node own a
// mirror Pod. So the coordinator is a Pod that a ReplicaSet controls. Whoever may make other Pods in kube-system controls the
// cluster anyway.

// foreignAgain is the least time between two warnings about Pods that only look like a pool's coordinator.
const foreignAgain = 10 * time.Minute

// ReasonForeignPod is the reason of the Event about such a Pod.
const ReasonForeignPod = "ForeignPod"

// crew are the Pods that bear the labels of a pool's coordinators.
type crew struct {
	// made are those that a ReplicaSet controls.
	made []corev1.Pod
	// current is the coordinator in each slot, or nil.
	current [edge.MaxSlots]*corev1.Pod
	// foreign are the names of all others, in order.
	foreign []string
}

// assign separates a pool's own Pods from Pods that only bear the same labels, which no ReplicaSet controls.
func assign(pods []corev1.Pod) crew {
	var c crew
	var ours [edge.MaxSlots][]corev1.Pod
	for _, p := range pods {
		if !isMade(&p) {
			c.foreign = append(c.foreign, p.Name)
			continue
		}
		if slot, ok := slotOf(&p); ok {
			ours[slot] = append(ours[slot], p)
		}
		c.made = append(c.made, p)
	}
	for slot := range ours {
		c.current[slot] = current(ours[slot])
	}
	slices.Sort(c.foreign)
	return c
}

// slotOf returns the slot of a Pod of ours. Its Deployment has given it the label.
func slotOf(p *corev1.Pod) (edge.Slot, bool) {
	text, standby := p.Labels[edge.LabelSlot]
	n, err := strconv.Atoi(text)
	return edge.Slot(n), !standby || err == nil && edge.Slot(n).Valid()
}

// others returns the coordinators in all slots but one.
func (c crew) others(but edge.Slot) (pods []corev1.Pod) {
	for slot, pod := range c.current {
		if pod != nil && edge.Slot(slot) != but {
			pods = append(pods, *pod)
		}
	}
	return pods
}

// slots returns how many slots there are up to the last one with a coordinator.
func (c crew) slots() (n edge.Slot) {
	for slot, pod := range c.current {
		if pod != nil {
			n = edge.Slot(slot) + 1
		}
	}
	return n
}

// isMade reports whether a ReplicaSet controls a Pod. None controls a mirror Pod, whatever its metadata says.
func isMade(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && owner != nil && owner.APIVersion == appsv1.SchemeGroupVersion.String() && owner.Kind == "ReplicaSet"
}

// crew reads a pool's Pods from the cache.
func (r *Reconciler) crew(ctx context.Context, pool edge.PoolName) (crew, error) {
	var pods corev1.PodList
	if err := r.cfg.Client.List(ctx, &pods, ofPool(pool), client.InNamespace(edge.NamespaceSystem)); err != nil {
		return crew{}, fmt.Errorf("list the Pods of the coordinators of pool %s: %w", pool, err)
	}
	return assign(pods.Items), nil
}

// accuse says that Pods bear the labels of a pool's coordinator and are not it, at most once in foreignAgain.
func (r *Reconciler) accuse(ctx context.Context, o owner, pool edge.PoolName, foreign []string) {
	r.metrics.foreigners(pool, len(foreign))
	if len(foreign) == 0 {
		return
	}
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	said, before := r.accused[o.Name]
	silent := before && now.Sub(said) < foreignAgain
	if !silent {
		r.accused[o.Name] = now
	}
	r.mu.Unlock()
	if silent {
		return
	}
	klog.FromContext(ctx).Info("Pods bear the labels of a pool's coordinator, but its Deployment did not make them; ignored",
		"pool", pool, "pods", len(foreign), "first", foreign[0])
	r.cfg.Events.Eventf(regarding(o), nil, corev1.EventTypeWarning, ReasonForeignPod, "Reconcile",
		"Pods in %s bear the labels of the coordinator of pool %s, but its Deployment did not make them: %d, the first %s. "+
			"They are ignored. Find out who runs them: a node can make such a Pod itself.",
		edge.NamespaceSystem, pool, len(foreign), foreign[0])
}

// acquit forgets what was said about a YurtCoordinator's Pods.
func (r *Reconciler) acquit(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.accused, name)
}
