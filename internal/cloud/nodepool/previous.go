package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
)

// AnnotationPrevious is where OpenYurt's controller records, as JSON, what a Node has from its pool. That controller uses
// another field manager, so our own writes would never remove what it put there. Our controller removes an entry when the pool
// no longer wants it, and never adds one.
const AnnotationPrevious = "nodepool.openyurt.io/previous-attributes"

// previous is the content of AnnotationPrevious.
type previous struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"`
}

// previousOf reads a Node's record. If it can't be read, what it named stays, as somebody else's.
func previousOf(node *corev1.Node) (p previous, ok bool) {
	text := node.Annotations[AnnotationPrevious]
	if text == "" || json.Unmarshal([]byte(text), &p) != nil {
		return previous{}, false
	}
	return p, true
}

// withoutPrevious removes from a Node what AnnotationPrevious records, except what the pool still wants. It returns the resulting
// Node, and whether that differs from the given one. A value that the pool had set goes even if somebody has changed it, as in
// OpenYurt. What the pool still wants stays, even if a NodePool may no longer set it.
func withoutPrevious(node *corev1.Node, pool *v1beta2.NodePool) (*corev1.Node, bool) {
	p, ok := previousOf(node)
	if !ok {
		return node, false
	}
	var spec v1beta2.NodePoolSpec
	if pool != nil {
		spec = pool.Spec
	}
	next, left := node.DeepCopy(), previous{}
	left.Labels = remaining(p.Labels, spec.Labels, next.Labels)
	left.Annotations = remaining(p.Annotations, spec.Annotations, next.Annotations)
	for _, t := range p.Taints {
		same := func(other corev1.Taint) bool { return id(other) == id(t) }
		if slices.ContainsFunc(spec.Taints, same) {
			left.Taints = append(left.Taints, t)
			continue
		}
		next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints, same)
	}
	if len(left.Labels) == len(p.Labels) && len(left.Annotations) == len(p.Annotations) && len(left.Taints) == len(p.Taints) {
		return node, false
	}
	if len(left.Labels)+len(left.Annotations)+len(left.Taints) == 0 {
		delete(next.Annotations, AnnotationPrevious)
		return next, true
	}
	content, err := json.Marshal(left)
	if err != nil {
		panic(err) // strings and times can be marshalled
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, AnnotationPrevious, string(content))
	return next, true
}

// remaining returns those of recorded whose keys are wanted, and deletes the others from has.
func remaining(recorded, wanted, has map[string]string) map[string]string {
	left := maps.Clone(recorded)
	maps.DeleteFunc(left, func(key, _ string) bool {
		_, stays := wanted[key]
		if !stays {
			delete(has, key)
		}
		return !stays
	})
	return left
}

// shedPrevious takes away what a Node has by OpenYurt's record and its pool no longer has. It returns the Node as it is then.
func (n *nodes) shedPrevious(ctx context.Context, node *corev1.Node, pool *v1beta2.NodePool) (*corev1.Node, error) {
	next, differs := withoutPrevious(node, pool)
	if !differs {
		return node, nil
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := n.cfg.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner)); err != nil {
		return nil, fmt.Errorf("patch what Node %s has from its former pool: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Took away what OpenYurt's controller had put on a node", "node", klog.KRef("", node.Name))
	return next, nil
}
