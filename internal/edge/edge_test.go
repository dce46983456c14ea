package edge

import "testing"

func TestLeasePath(t *testing.T) {
	const want = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	if got := NodeName("n1").LeasePath(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
