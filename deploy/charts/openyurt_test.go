package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
)

// asOpenYurt16 is the CRD of NodePools in the shape that OpenYurt 1.4 to 1.6 publish: v1beta1 is stored, v1alpha1 served, and a
// webhook converts them.
const asOpenYurt16 = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodepools.apps.openyurt.io}
spec:
  group: apps.openyurt.io
  scope: Cluster
  names: {kind: NodePool, listKind: NodePoolList, plural: nodepools, singular: nodepool, shortNames: [np], categories: [yurt]}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1beta1, v1alpha1]
      clientConfig: {service: {namespace: kube-system, name: yurt-manager-webhook-service, path: /convert}}
  versions:
  - {name: v1alpha1, served: true, storage: false, subresources: {status: {}}, schema: {openAPIV3Schema: &any {
      type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            properties:
              type: {type: string}
              hostNetwork: {type: boolean}
              labels: {type: object, additionalProperties: {type: string}}
              annotations: {type: object, additionalProperties: {type: string}}
              taints:
                type: array
                items:
                  type: object
                  required: [effect, key]
                  properties:
                    effect: {type: string}
                    key: {type: string}
                    value: {type: string}
                    timeAdded: {type: string, format: date-time}
          status:
            type: object
            properties:
              nodes: {type: array, items: {type: string}}
              readyNodeNum: {type: integer, format: int32}
              unreadyNodeNum: {type: integer, format: int32}
`

// TestTheNodePoolsOfAnOlderOpenYurt are read by ours, and by its own CRD when that comes back, by the steps of
// docs/from-openyurt.md.
func TestTheNodePoolsOfAnOlderOpenYurt(t *testing.T) {
	c := newCluster(t)
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "f.yaml")
		mustAccept(t, "a file", os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	kubectl := func(args ...string) (out string) {
		t.Helper()
		cloudtest.Eventually(t, "kubectl "+args[0], func() (err error) {
			out, err = c.kubectl(args...)
			return err
		})
		return out
	}
	kubectl("apply", "--server-side", "--field-manager=helm-of-openyurt", "-f", file(asOpenYurt16))
	kubectl("apply", "--server-side", "-f", file(`{apiVersion: apps.openyurt.io/v1beta1, kind: NodePool, metadata: {name: north},
spec: {type: Edge, labels: {site: north}, taints: [{key: a, effect: NoSchedule}]}}`))

	// Beside it, ours would wait for ever: the chart says so before.
	const registry = "image.registry=registry.example.org/edge"
	_, err := helm(t, "install", chart, chart, "--kubeconfig", c.kubeconfig, "--namespace", "kube-system", "--set", registry,
		"--set", "crds.nodepools=false,controllers.nodepool=false")
	if err == nil || !strings.Contains(err.Error(), "does not serve apps.openyurt.io/v1beta2/NodePool") {
		t.Errorf("installed without the CRD: %v", err)
	}

	kubectl("patch", "crd", "nodepools.apps.openyurt.io", "--type=merge", "-p",
		`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	c.helm("upgrade", "--install", chart, chart, "--set", registry, "--set", "crds.storedNodePools=v1beta1", "--take-ownership",
		"--force-conflicts")
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "north"}}
	cloudtest.Eventually(t, "it is read as v1beta2", func() error {
		return c.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)
	})
	if pool.Spec.Labels["site"] != "north" || len(pool.Spec.Taints) != 1 || pool.Spec.Type != v1beta2.Edge {
		t.Errorf("it is %+v", pool.Spec)
	}
	pool.Spec.Labels["site"] = "ours"
	mustAccept(t, "a write as v1beta2", c.client.Update(t.Context(), pool))
	create(t, c.client, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "south"}})
	stored := kubectl("get", "crd", "nodepools.apps.openyurt.io", "-o", "jsonpath={.status.storedVersions}")
	if stored != `["v1beta1"]` {
		t.Errorf("stored are %s", stored)
	}

	c.helm("uninstall", chart, "--no-hooks")
	kubectl("replace", "-f", file(asOpenYurt16))
	for name, site := range map[string]string{"north": "ours", "south": ""} {
		old := &unstructured.Unstructured{}
		cloudtest.Eventually(t, name+" is read as v1beta1", func() error {
			out, err := c.kubectl("get", "nodepools.v1beta1.apps.openyurt.io", name, "-o", "yaml")
			if err != nil {
				return err
			}
			old = parse(t, out)
			return nil
		})
		if got, _, err := unstructured.NestedString(old.Object, "spec", "labels", "site"); err != nil || got != site {
			t.Errorf("%s: %v, %v", name, fmt.Sprint(old.Object["spec"]), err)
		}
	}
}
