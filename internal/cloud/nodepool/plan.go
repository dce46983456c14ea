package nodepool

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

const (
	// LabelHostNetwork marks the nodes of a pool whose Pods use their host's network.
	LabelHostNetwork = "nodepool.openyurt.io/hostnetwork"

	// AnnotationAttributes lists, as JSON, the keys of the labels and annotations that a Node has from its pool.
	AnnotationAttributes = "apps.openyurt.io/nodepool-attributes"

	// AnnotationTaints lists, as JSON, the taints that a Node has from its pool.
	AnnotationTaints = "apps.openyurt.io/nodepool-taints"
)

// Wanted is what a pool's nodes must have.
type Wanted struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
}

// WantedBy returns what a pool wants on its nodes; nothing without a pool.
func WantedBy(pool *v1beta2.NodePool) Wanted {
	if pool == nil {
		return Wanted{}
	}
	w := Wanted{Labels: maps.Clone(pool.Spec.Labels), Annotations: maps.Clone(pool.Spec.Annotations)}
	for _, attributes := range []map[string]string{w.Labels, w.Annotations} {
		maps.DeleteFunc(attributes, func(key, _ string) bool { return reserved(key) })
	}
	if pool.Spec.HostNetwork || pool.Annotations[LabelHostNetwork] == "true" { // as OpenYurt's older versions have it
		if w.Labels == nil {
			w.Labels = make(map[string]string)
		}
		w.Labels[LabelHostNetwork] = "true"
	}
	for _, t := range pool.Spec.Taints {
		if !reserved(t.Key) {
			w.Taints = append(w.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	return w
}

// reservedTaints returns the keys of a pool's taints that are left out.
func reservedTaints(pool *v1beta2.NodePool) []string {
	var keys []string
	for _, t := range pool.Spec.Taints {
		if reserved(t.Key) && !slices.Contains(keys, t.Key) {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// labelDesiredNodePool is OpenYurt's: its webhook has the pool of that name take a node that is in none.
const labelDesiredNodePool = "apps.openyurt.io/desired-nodepool"

// allowed are the keys of Kubernetes' own domains that a pool may set, because they state what people know of a site.
// They say where the site is, which role kubectl shows for its nodes, and that the cloud's load balancers can't reach it.
var allowed = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelNodeExcludeBalancers, "node-role.kubernetes.io/edge",
}

// reserved reports whether a key of labels, annotations or taints is forbidden to pools, because a person who may write NodePools
// need not have the right to write Nodes. Keys of Kubernetes' domains state facts about a node, such as its name or what a
// controller has found out. A pool that set such a taint with another value would own the taint, and could then remove it. Our
// own keys state which pool the node is in and where it is on the LAN, and record what it has from its pool. By a false record
// this controller would remove what others have set. The policy nodepool-values refuses the same keys.
func reserved(key string) bool {
	if slices.Contains([]string{
		edge.LabelNodePool, labelDesiredNodePool, edge.AnnotationLANAddress, edge.TaintUnschedulable,
		AnnotationAttributes, AnnotationTaints, AnnotationPrevious,
	}, key) {
		return true
	}
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed || slices.Contains(allowed, key) {
		return false
	}
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool {
		return domain == own || strings.HasSuffix(domain, "."+own)
	})
}

// reservedAttributes returns the keys of a pool's labels and annotations that are left out.
func reservedAttributes(pool *v1beta2.NodePool) []string {
	var keys []string
	for _, attributes := range []map[string]string{pool.Spec.Labels, pool.Spec.Annotations} {
		for key := range attributes {
			if reserved(key) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// attributes is the content of AnnotationAttributes: sorted keys.
type attributes struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// memo returns the wanted AnnotationAttributes; empty means none.
func (w Wanted) memo() string {
	if len(w.Labels) == 0 && len(w.Annotations) == 0 {
		return ""
	}
	content, err := json.Marshal(attributes{sortedKeys(w.Labels), sortedKeys(w.Annotations)})
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return string(content)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// CachedAnnotations returns the keys of the Node's annotations that must be in the cache. They are few, while a Node can have
// many others.
func CachedAnnotations(node *corev1.Node) []string {
	keys := []string{AnnotationAttributes, AnnotationTaints, AnnotationPrevious}
	if p, ok := previousOf(node); ok {
		keys = append(keys, sortedKeys(p.Annotations)...)
	}
	if memo := node.Annotations[AnnotationAttributes]; memo != "" {
		var a attributes
		if json.Unmarshal([]byte(memo), &a) == nil { // otherwise it is written again anyway
			keys = append(keys, a.Annotations...)
		}
	}
	return keys
}

// attributesDiffer reports whether a Node's labels and annotations must be applied.
func attributesDiffer(node *corev1.Node, w Wanted) bool {
	return node.Annotations[AnnotationAttributes] != w.memo() ||
		!contains(node.Labels, w.Labels) || !contains(node.Annotations, w.Annotations)
}

func contains(has, wants map[string]string) bool {
	for k, v := range wants {
		if found, ok := has[k]; !ok || found != v {
			return false
		}
	}
	return true
}

// TaintPlan is what a Node's taints must be, and the record of ours among them.
type TaintPlan struct {
	Taints []corev1.Taint
	// Memo is the content of AnnotationTaints; empty means none.
	Memo string
}

// planTaints returns the plan, and whether it differs from the present state.
func planTaints(node *corev1.Node, wanted []corev1.Taint) (plan TaintPlan, differs bool) {
	memo := node.Annotations[AnnotationTaints]
	before := remembered(memo)
	var ours []corev1.Taint
	done := make(map[string]bool, len(wanted)) // by id
	for _, t := range node.Spec.Taints {
		i := slices.IndexFunc(wanted, func(w corev1.Taint) bool { return id(w) == id(t) })
		mine := slices.ContainsFunc(before, func(b corev1.Taint) bool { return id(b) == id(t) && b.Value == t.Value })
		switch {
		case i < 0 && mine: // no longer wanted
			differs = true
			continue
		case i < 0: // somebody else's
		case wanted[i].Value == t.Value:
			done[id(t)] = true
			if mine {
				ours = append(ours, wanted[i])
			}
		default:
			differs, t = true, wanted[i]
			done[id(t)] = true
			ours = append(ours, wanted[i])
		}
		plan.Taints = append(plan.Taints, t)
	}
	for _, w := range wanted {
		if !done[id(w)] {
			done[id(w)], differs = true, true
			plan.Taints, ours = append(plan.Taints, w), append(ours, w)
		}
	}
	plan.Memo = memoOf(ours)
	return plan, differs || plan.Memo != memo
}

// id identifies a taint: a Node has at most one of a key and an effect.
func id(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// remembered reads AnnotationTaints. If it can't be read, the taints stay, as somebody else's.
func remembered(memo string) []corev1.Taint {
	var taints []corev1.Taint
	if memo == "" || json.Unmarshal([]byte(memo), &taints) != nil {
		return nil
	}
	return taints
}

func memoOf(taints []corev1.Taint) string {
	if len(taints) == 0 {
		return ""
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int { return strings.Compare(id(a), id(b)) })
	content, err := json.Marshal(taints)
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return string(content)
}

// complete reports whether a Node has all that its pool wants, and nothing else from us or OpenYurt.
func complete(node *corev1.Node, pool *v1beta2.NodePool, w Wanted) bool {
	if _, differs := withoutPrevious(node, pool); differs || attributesDiffer(node, w) {
		return false
	}
	if len(w.Taints) == 0 && node.Annotations[AnnotationTaints] == "" {
		return true
	}
	_, differs := planTaints(node, w.Taints)
	return !differs
}

func ready(node *corev1.Node) bool {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return i >= 0 && node.Status.Conditions[i].Status == corev1.ConditionTrue
}

// statusOf returns the status of a pool with these nodes.
func statusOf(pool *v1beta2.NodePool, nodes []corev1.Node, now metav1.Time) v1beta2.NodePoolStatus {
	w, all := WantedBy(pool), true
	status := v1beta2.NodePoolStatus{
		ObservedGeneration: pool.Generation, NodePoolHubLeadersStatus: pool.Status.NodePoolHubLeadersStatus,
	}
	for i := range nodes {
		node := &nodes[i]
		if ready(node) {
			status.ReadyNodeNum++
		} else {
			status.UnreadyNodeNum++
		}
		status.Nodes = append(status.Nodes, node.Name)
		all = all && complete(node, pool, w)
	}
	slices.Sort(status.Nodes)
	status.Conditions = conditions(pool, all, now)
	return status
}

func poolOf(node *corev1.Node) string { return node.Labels[edge.LabelNodePool] }
