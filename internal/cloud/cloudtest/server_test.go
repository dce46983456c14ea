package cloudtest_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

func TestOneServerForAPackage(t *testing.T) {
	a, b := cloudtest.Start(t), cloudtest.Start(t)
	if a.Host != b.Host || a == b {
		t.Errorf("%s and %s: want one server, and a copy each", a.Host, b.Host)
	}
	cfg, requests := cloudtest.Count(a)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if err := cloudtest.Client(t, cfg).Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if w := requests.Writes(); len(w) != 1 || w[0] != "POST /api/v1/namespaces" {
		t.Errorf("counted %v", w)
	}
	nobody := cloudtest.Client(t, cloudtest.As(a, "nobody"))
	if err := nobody.Get(t.Context(), client.ObjectKey{Name: "one"}, namespace); !apierrors.IsForbidden(err) {
		t.Errorf("%v: want that nobody may do nothing", err)
	}
}

func TestAServerOfItsOwn(t *testing.T) {
	cfg := cloudtest.Start(t, cloudtest.WithoutCRDs(), cloudtest.Flag("disable-admission-plugins", "NamespaceLifecycle"))
	if cfg.Host == cloudtest.Start(t).Host {
		t.Error("it is the package's")
	}
	c := cloudtest.Client(t, cfg)
	homeless := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nowhere", Name: "homeless"}}
	if err := c.Create(t.Context(), homeless); err != nil {
		t.Errorf("the flag has no effect: %v", err)
	}
	if err := c.List(t.Context(), &v1beta2.NodePoolList{}); err == nil {
		t.Error("it has CRDs")
	}
}
