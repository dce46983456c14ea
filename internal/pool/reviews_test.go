package pool

import (
	"crypto/x509/pkix"
	"os"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestAKubeletAsksTheCoordinator whether the coordinator may use it, and others; and the certificate by which it may opens
// no door of the coordinator's own.
func TestAKubeletAsksTheCoordinator(t *testing.T) {
	t.Parallel()
	const toKubelets = "openyurt:yurt-coordinator"
	dir := t.TempDir()
	var file string
	c := start(t, func(config *Config) {
		ca := pooltest.NewAuthority(t, "cloud")
		client := ca.Issue(t, pkix.Name{CommonName: toKubelets}, pooltest.Tomorrow())
		file = pooltest.WriteFile(t, dir, "client.crt", client.Cert)
		config.KubeletClientCertificate, config.KubeletClientKey = file, pooltest.WriteFile(t, dir, "client.key", client.Key)
	})
	ctx := t.Context()
	review := func(who pkix.Name, subject string, groups ...string) (bool, error) {
		exec := &authorizationv1.ResourceAttributes{
			Verb: "create", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "n1",
		}
		got, err := c.as(t, who).AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: subject, Groups: groups, ResourceAttributes: exec},
		}, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed, err
	}
	for _, c := range []struct {
		subject, group string
		want           bool
	}{
		{toKubelets, "system:authenticated", true}, {"admin", "system:masters", false}, {"alice", edge.GroupOperators, false},
	} {
		if got, err := review(pooltest.Node("n1"), c.subject, c.group); err != nil || got != c.want {
			t.Errorf("%s may use the kubelet: %v, %v, want %v", c.subject, got, err, c.want)
		}
	}
	if got, err := review(pooltest.Node("n2"), toKubelets); err != nil || got {
		t.Errorf("another node asks: %v, %v", got, err)
	}
	_, err := review(pooltest.Operator(), toKubelets)
	forbidden(t, "an operator reviews others", err)

	holder := c.as(t, pkix.Name{CommonName: toKubelets})
	_, err = holder.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	forbidden(t, "whoever has that key reads a Node here", err)
	err = holder.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/pods").Do(ctx).Error()
	forbidden(t, "whoever has that key uses a kubelet by way of the coordinator", err)

	if err := os.WriteFile(file, c.ca.Issue(t, pkix.Name{CommonName: "renewed"}, pooltest.Tomorrow()).Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := review(pooltest.Node("n1"), "renewed"); err != nil || !got {
		t.Errorf("by its next certificate: %v, %v", got, err)
	}
}
