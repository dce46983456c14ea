package cloud

import (
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/e2e/panels"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/pki"
)

const (
	// metricsCertificate is the Secret with what /metrics is served with.
	metricsCertificate = "metrics-tls"
	// metricsReader is the ServiceAccount whose token the ServiceMonitors name.
	metricsReader = "yurt-coordinator-metrics-reader"
	// runbooks is where the chart is told that docs/runbooks.md is.
	runbooks = "https://wiki.example.org/runbooks"
)

// alertsHold has promtool check the chart's alerts, and run their cases.
func alertsHold(t *kit.T) {
	text, err := os.ReadFile(filepath.Join(t.Config.Chart, "files", "alerts.yaml"))
	t.Must(err)
	groups, err := panels.ReadAlerts(text)
	t.Must(err)
	dir := filepath.Join(t.Lab.Dir(), "alerts")
	t.Must(os.MkdirAll(dir, 0o700))
	rules, err := panels.RulesFile(groups)
	t.Must(err)
	t.Must(os.WriteFile(filepath.Join(dir, "alerts.yaml"), rules, 0o600))
	cases, err := os.ReadFile(filepath.Join(t.Config.Chart, "..", "testdata", "alerts.cases.yaml"))
	t.Must(err)
	t.Must(os.WriteFile(filepath.Join(dir, "cases.yaml"), cases, 0o600))
	bins, err := t.Lab.Programs()
	t.Must(err)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "cases.yaml"}} {
		cmd := exec.CommandContext(t.Ctx, bins.Promtool, args...)
		cmd.Dir = dir
		t.Runs(cmd)
		t.Say("promtool %s", strings.Join(args, " "))
	}
}

// monitoringKinds are those of the Prometheus Operator that the chart has, without what they may contain.
const monitoringKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, listKind: ServiceMonitorList, plural: servicemonitors, singular: servicemonitor}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PrometheusRule, listKind: PrometheusRuleList, plural: prometheusrules, singular: prometheusrule}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// monitored makes a certificate as docs/metrics.md says, and upgrades the release with the chart's monitors and alerts. It
// returns the alerts.
func monitored(t *kit.T) (groups []panels.Group) {
	authority, err := pki.Create(filepath.Join(t.Lab.Dir(), "metrics-pki"), "ca", clock.RealClock{})
	t.Must(err)
	pair, err := authority.Issue(pki.Request{Name: "metrics", Server: true, DNSNames: []string{
		"coordinator-controller-metrics.kube-system.svc", "coordinator-approver-metrics.kube-system.svc",
	}})
	t.Must(err)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: metricsCertificate}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{},
	}
	for key, file := range map[string]string{
		corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, corev1.ServiceAccountRootCAKey: authority.Files().Cert,
	} {
		s.Data[key], err = os.ReadFile(file)
		t.Must(err)
	}
	_, err = t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Create(t.Ctx, s, metav1.CreateOptions{})
	t.Must(err)
	applyYAML(t, []byte(monitoringKinds))
	t.Eventually(patience, "the kinds of the Prometheus Operator are served", func() error {
		_, err := t.Cloud.Objects.Resource(serviceMonitors).List(t.Ctx, metav1.ListOptions{})
		if err == nil {
			_, err = t.Cloud.Objects.Resource(prometheusRules).List(t.Ctx, metav1.ListOptions{})
		}
		return err
	})
	cmd, err := t.Lab.Helm(t.Ctx, "upgrade", "--install", "--take-ownership", "--force-conflicts", "--wait", "--timeout=5m",
		"--set=monitoring.certificate="+metricsCertificate+",monitoring.serviceMonitor.enabled=true",
		"--set=monitoring.serviceMonitor.interval="+scrapeEvery.String(),
		"--set=monitoring.prometheusRule.enabled=true,monitoring.prometheusRule.runbooks="+runbooks,
		"--set-json=networkPolicy.metricsFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\""+
			monitoring+"\"}}}]")
	t.Must(err)
	t.Runs(cmd)
	t.Say("the release has monitors and alerts")
	list, err := t.Cloud.Objects.Resource(prometheusRules).Namespace(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fail("PrometheusRules: %+v, %v", list, err)
	}
	rule, err := list.Items[0].MarshalJSON()
	t.Must(err)
	var has struct {
		Spec struct{ Groups []panels.Group }
	}
	t.Must(json.Unmarshal(rule, &has))
	return has.Spec.Groups
}

// onlyMetrics: the token that Prometheus shows opens /metrics, and nothing else that matters.
func onlyMetrics(t *kit.T) {
	user := "system:serviceaccount:" + edge.NamespaceSystem + ":" + metricsReader
	may := func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		spec.User, spec.Groups = user, []string{"system:serviceaccounts", "system:authenticated"}
		review, err := t.Cloud.AuthorizationV1().SubjectAccessReviews().Create(t.Ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		t.Must(err)
		return review.Status.Allowed
	}
	if !may(authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"},
	}) {
		t.Fail("%s may not get /metrics", user)
	}
	for _, what := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: edge.NamespaceSystem}, {Verb: "list", Resource: "pods"},
		{Verb: "get", Resource: "nodes", Subresource: "metrics"},
	} {
		if may(authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what}) {
			t.Fail("%s may %s %s", user, what.Verb, what.Resource)
		}
	}
}

// siteFiles writes the files that docs/metrics.md gives an agent on site: a certificate for metrics alone, which a person
// requests and another approves, its key, and the pool's authority. It looks at what the certificate opens.
func (p *prometheus) siteFiles() {
	const name, person, pool = "metrics-of-p1", "ana", edge.PoolName("p1")
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	p.Must(err)
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	p.Must(err)
	asked, err := cert.MakeCSR(key, &pkix.Name{CommonName: person, Organization: []string{edge.GroupMetrics}}, nil, nil)
	p.Must(err)
	access, err := p.Lab.CloudConfig()
	p.Must(err)
	access.Impersonate = rest.ImpersonationConfig{UserName: person, Groups: []string{user.SystemPrivilegedGroup}}
	ana := p.Client(access)
	month := 30 * 24 * time.Hour
	_, _, err = csr.RequestCertificateWithContext(p.Ctx, ana, asked, name, "coordinator.openyurt.io/"+string(pool), &month,
		[]certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, key)
	p.Must(err)
	requests := p.Cloud.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Get(p.Ctx, name, metav1.GetOptions{})
	p.Must(err)
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Approved", Message: "it reads metrics",
	})
	_, err = requests.UpdateApproval(p.Ctx, name, request, metav1.UpdateOptions{})
	p.Must(err)
	p.Eventually(patience, "the certificate for metrics alone is signed", func() error {
		if request, err = requests.Get(p.Ctx, name, metav1.GetOptions{}); err == nil && len(request.Status.Certificate) == 0 {
			err = fmt.Errorf("%+v", request.Status.Conditions)
		}
		return err
	})
	signed, err := cert.ParseCertsPEM(request.Status.Certificate)
	p.Must(err)
	if left := time.Until(signed[0].NotAfter); left < month-time.Hour || left > month {
		p.Fail("the certificate is good for %v more, want %v", left, month)
	}
	at, err := p.Lab.CoordinatorConfig(1, lab.Operator)
	p.Must(err)
	p.file("pool.crt", at.CAData)
	p.file("metrics.crt", request.Status.Certificate)
	p.file("metrics.key", keyPEM)

	at.CertData, at.KeyData = request.Status.Certificate, keyPEM
	there := p.Client(at)
	if _, err := there.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(p.Ctx); err != nil {
		p.Fail("/metrics at the coordinator: %w", err)
	}
	_, pods := there.CoreV1().Pods("").List(p.Ctx, metav1.ListOptions{})
	_, page := there.Discovery().RESTClient().Get().AbsPath(edge.PathPage).DoRaw(p.Ctx)
	for what, err := range map[string]error{"list Pods": pods, "see the page": page} {
		if !apierrors.IsForbidden(err) {
			p.Fail("who has a certificate for metrics alone may %s at the coordinator: %v", what, err)
		}
	}
}
