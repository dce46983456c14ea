package shareserver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

func TestPlanNamespaces(t *testing.T) {
	space := func(name string, mine, going bool) corev1.Namespace {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mine {
			ns.Labels = map[string]string{labelMadeHere: "true"}
		}
		if going {
			ns.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return ns
	}
	for what, c := range map[string]struct {
		wanted         []string
		have           []corev1.Namespace
		create, remove []string
	}{
		"nothing":          {},
		"the first":        {wanted: []string{"shop"}, create: []string{"shop"}},
		"as it should be":  {wanted: []string{"shop"}, have: []corev1.Namespace{space("shop", true, false)}},
		"the last is gone": {have: []corev1.Namespace{space("shop", true, false)}, remove: []string{"shop"}},
		"somebody else's":  {have: []corev1.Namespace{space("kube-system", false, false)}},
		"wanted, not mine": {wanted: []string{"kube-system"}, have: []corev1.Namespace{space("kube-system", false, false)}},
		"wanted while going": {
			wanted: []string{"shop"}, have: []corev1.Namespace{space("shop", true, true)}, remove: []string{"shop"},
			create: []string{"shop"},
		},
	} {
		create, remove := planNamespaces(c.wanted, c.have)
		if !slices.Equal(create, c.create) || !slices.Equal(remove, c.remove) {
			t.Errorf("%s: create %v, remove %v; want %v, %v", what, create, remove, c.create, c.remove)
		}
	}
}

// countedLists is a coordinator without a Namespace.
type countedLists struct {
	corev1client.NamespaceInterface
	lists int
}

func (c *countedLists) List(context.Context, metav1.ListOptions) (*corev1.NamespaceList, error) {
	c.lists++
	return &corev1.NamespaceList{}, nil
}

// TestNamespacesOfNothing: a coordinator in which nodes have nothing is looked at once.
func TestNamespacesOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counted := &countedLists{}
		n := &namespaces{
			client: counted, wanted: func() []string { return nil }, changed: make(chan struct{}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := n.Run(ctx); err != nil || counted.lists != 1 {
			t.Errorf("%d lists in a minute: %v", counted.lists, err)
		}
	})
}
