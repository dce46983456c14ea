package charts

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

// TestNodePoolValues: the policy refuses what a Node does, and takes what a Node does.
func TestNodePoolValues(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	long := strings.Repeat("a", 64)
	labels := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Labels: map[string]string{key: value}}
	}
	annotations := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Annotations: map[string]string{key: value}}
	}
	taint := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Taints: []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}}
	}
	domain := strings.Repeat(strings.Repeat("d", 62)+".", 4) + "d" // 253 characters
	for name, tt := range map[string]struct {
		spec v1beta2.NodePoolSpec
		bad  bool
	}{
		"nothing":                     {v1beta2.NodePoolSpec{}, false},
		"a label":                     {labels("example.org/Rack_1", "A.b-c_1"), false},
		"an empty label":              {labels("a", ""), false},
		"the longest":                 {labels(domain+"/"+long[1:], long[1:]), false},
		"a prefix that is too long":   {labels(domain+"d/a", ""), true},
		"a name that is too long":     {labels("a/"+long, ""), true},
		"a value that is too long":    {labels("a", long), true},
		"a value with a blank":        {labels("a", "two words"), true},
		"a value that ends in a dash": {labels("a", "b-"), true},
		"a key with a blank":          {labels("two words", ""), true},
		"a key with two slashes":      {labels("a/b/c", ""), true},
		"a key without a name":        {labels("a/", ""), true},
		"a prefix in upper case":      {labels("A/b", ""), true},
		"an annotation":               {annotations("example.org/note", "any text, of any length: "+long), false},
		"an annotation's key":         {annotations("no note", ""), true},
		"a taint":                     {taint("edge", "yes"), false},
		"a taint without a value":     {taint("edge", ""), false},
		"a taint's key":               {taint("on the edge", ""), true},
		"a taint's value":             {taint("edge", "Zürich"), true},
	} {
		pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "values"}, Spec: tt.spec}
		err := c.Create(t.Context(), pool, client.DryRunAll)
		if tt.bad != apierrors.IsInvalid(err) || !tt.bad && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "values", Labels: tt.spec.Labels, Annotations: tt.spec.Annotations,
		}, Spec: corev1.NodeSpec{Taints: tt.spec.Taints}}
		if err := c.Create(t.Context(), node, client.DryRunAll); tt.bad != apierrors.IsInvalid(err) || !tt.bad && err != nil {
			t.Errorf("%s: a Node: %v", name, err)
		}
	}
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "values"}}
	create(t, c, pool)
	pool.Spec.Labels = map[string]string{"a": "two words"}
	if err := c.Update(t.Context(), pool); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "two words") {
		t.Errorf("a change: %v", err)
	}
}
