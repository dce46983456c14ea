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

// What a coordinator is made from follows from what somebody wants of it, the order, and from the program that makes it. A later
// program makes something else of the same order. For a pool whose settings pin a release that is no change: it keeps what it was
// given for its order, whichever program made that.

// annotationCasts on a YurtAppSet says which shipments were made for which orders: ORDER:MARK, sorted, with spaces.
const annotationCasts = "openyurt.io/coordinator-casts"

// recast is raised when what pinned coordinators were given must be made anew, as for a file in their Secret that they need.
// They then get it as others do, a few at a time.
const recast = 1

// order is a digest of all that somebody wants of a pool's coordinator.
type order string

// cast is a shipment that was made for an order.
type cast struct {
	order order
	mark  string
}

// casts are those that pools have been given in a slot.
type casts map[cast]bool

// orderOf returns a pool's order. Settings that are about whether there is a coordinator, or when it is changed, are no part of
// it.
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

// castsOf returns those that a YurtAppSet knows; nil has none.
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

// keeps returns what a pool is to have that has been given something: what is made now for its order, unless its release is
// pinned and it has what was made for that order before.
func (c casts) keeps(pinned bool, had shipment, o order, made shipment) shipment {
	if pinned && c[cast{o, had.mark}] {
		return had
	}
	return made
}

// after returns which are known once pools are given this: of those before, only what a pool still orders and has.
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
