package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
)

// An order is all that settings and the YurtCoordinator ask of a pool's coordinator. A shipment is the PodSpec that this program
// makes for an order. A later version of the program may make another shipment for the same order. A pool whose settings pin a
// release ignores that: it keeps its shipment for as long as its order is the same.

// annotationCasts on a YurtAppSet says which shipments were made for which orders: ORDER:MARK, sorted, with spaces.
const annotationCasts = "openyurt.io/coordinator-casts"

// recast is part of every order. Raise it when even coordinators with a pinned release need a new shipment, for example one that
// reads a new file in their Secret. They then get it a few at a time, as others do.
const recast = 1

// order is a digest of all that somebody wants of a pool's coordinator.
type order string

// cast is a shipment that was made for an order.
type cast struct {
	order order
	mark  string
}

// casts are the casts that pools have in one slot.
type casts map[cast]bool

// orderOf returns a pool's order. It leaves out the settings that only decide whether there is a coordinator, or when it changes.
func orderOf(c Config, p Wanted) (order, error) {
	s := *p.Settings.DeepCopy()
	s.Create, s.MinNodes, s.Replicas, s.Release, s.Paused, s.Canary = "", nil, nil, "", nil, nil
	content, err := json.Marshal(struct {
		Recast   int
		Image    string
		Taints   []corev1.Taint
		Settings v1alpha1.CoordinatorSettings
		Policy   corev1.PullPolicy
		Secrets  []string
		Kubelets bool
	}{recast, p.Image, p.Taints, s, c.PullPolicy, c.PullSecrets, c.KubeletAuthority != nil})
	if err != nil {
		return "", fmt.Errorf("what pool %s orders: %w", p.Pool, err)
	}
	sum := sha256.Sum256(content)
	return order(hex.EncodeToString(sum[:8])), nil
}

// castsOf returns the casts that a YurtAppSet records; a nil YurtAppSet has none.
func castsOf(app *v1beta1.YurtAppSet) casts {
	all := casts{}
	if app == nil {
		return all
	}
	for _, each := range strings.Fields(app.Annotations[annotationCasts]) {
		if o, mark, ok := strings.Cut(each, ":"); ok {
			all[cast{order(o), mark}] = true
		}
	}
	return all
}

func (c casts) String() string {
	texts := make([]string, 0, len(c))
	for each := range maps.Keys(c) {
		texts = append(texts, string(each.order)+":"+each.mark)
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// keeps returns the shipment for a pool that already has one. had is what it has, and made is what this program makes for its
// order now. A pool with a pinned release keeps had if that was made for the same order.
func (c casts) keeps(pinned bool, had shipment, o order, made shipment) shipment {
	if pinned && c[cast{o, had.mark}] {
		return had
	}
	return made
}

// after returns the casts once pools have got these gives. It keeps former ones only where a pool still has them for its order.
func (c casts) after(gives []decided) casts {
	is := casts{}
	for _, d := range gives {
		each := cast{d.order, d.gives.mark}
		if !d.none && (d.gives == d.made || c[each]) {
			is[each] = true
		}
	}
	return is
}
