package cloud

import (
	"crypto/x509/pkix"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
)

// siteFiles writes the files that docs/metrics.md gives an agent on site: a certificate that is only for metrics, its key, and
// the pool's authority. One person requests the certificate and another approves it.
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
	at, err := p.Lab.CoordinatorConfig(1, lab.Operator)
	p.Must(err)
	p.file("pool.crt", at.CAData)
	p.file("metrics.crt", request.Status.Certificate)
	p.file("metrics.key", keyPEM)
}
