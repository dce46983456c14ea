package operators

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/approve"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

// HubLife is the life of a hub's certificate. A hub learns of a new authority when it renews its certificate. HubLife must be
// shorter than certs.Lives.Settle (90 days by default), so that each hub knows an authority before that authority signs. The
// exception is an authority that replaces an unusable one: it signs at once.
const HubLife = 30 * 24 * time.Hour

const hubsAuthorityPrefix = "openyurt:hubs-authority:"

// signHubs returns a hub's serving certificate, followed by the authorities that verify it. refused is why it does not sign; err
// says that it can't find out. It signs only what a node may ask for, whoever approved the request.
func (s *Signer) signHubs(
	ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
) (signed []byte, refused, err error) {
	name := approve.NodeOf(csr)
	if name == "" {
		return nil, fmt.Errorf("%.100q, which made it, is not a node", csr.Spec.Username), nil
	}
	node := &corev1.Node{}
	if err := s.cfg.Client.Get(ctx, client.ObjectKey{Name: string(name)}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no node %s", name), nil
		}
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	asked, addresses, refused := approve.Asked(csr, node)
	if refused != nil {
		return nil, refused, nil
	}
	authority, refused, err := s.hubsAuthority(ctx, edge.PoolName(node.Labels[edge.LabelNodePool]))
	if refused != nil || err != nil {
		return nil, refused, err
	}
	wanted := certs.Request{CommonName: name.HubUser(), Server: true, Life: HubLife}
	for _, ip := range addresses {
		wanted.IPs = append(wanted.IPs, ip.String())
	}
	if signed, err = authority.SignFor(asked.PublicKey, wanted, s.cfg.Clock.Now()); err != nil {
		return nil, nil, fmt.Errorf("hubs' authority of node %s: %w", name, err)
	}
	return append(signed, authority.Trusted...), nil, nil
}

// hubsAuthority returns the authority that signs for a pool's hubs. It first creates or rotates the authority if that is due.
// It runs only when a hub requests a certificate, which each hub does every 20 to 27 days. The NodePool owns the authority's
// Secret, so both are deleted together.
func (s *Signer) hubsAuthority(ctx context.Context, pool edge.PoolName) (a certs.Authority, refused, err error) {
	if pool == "" {
		return a, errors.New("its node is in no pool, so no authority signs for it: put it into one"), nil
	}
	owner := &v1beta2.NodePool{}
	if err := s.cfg.Reader.Get(ctx, client.ObjectKey{Name: string(pool)}, owner); err != nil {
		if apierrors.IsNotFound(err) {
			return a, fmt.Errorf("there is no NodePool %s", pool), nil
		}
		return a, nil, fmt.Errorf("NodePool %s: %w", pool, err)
	}
	at, have := client.ObjectKey{Namespace: edge.NamespaceKeys, Name: pool.HubsAuthoritySecret()}, &corev1.Secret{}
	if err := client.IgnoreNotFound(s.cfg.Reader.Get(ctx, at, have)); err != nil {
		return a, nil, fmt.Errorf("read Secret %s: %w", at, err)
	}
	a = keys.AuthorityIn(have)
	now := s.cfg.Clock.Now()
	for range 3 { // to be made, or promoted; then to be trusted
		step, why, _ := a.Plan(s.cfg.Lives.Settle, now)
		if step == certs.StepNone {
			break
		}
		if a, err = a.Take(step, hubsAuthorityPrefix+string(pool), s.cfg.Lives.Authority, now); err != nil {
			return a, nil, fmt.Errorf("hubs' authority of pool %s: %w", pool, err)
		}
		klog.FromContext(ctx).Info("Turned the authority for a pool's hubs", "pool", pool, "step", step, "why", why)
	}
	want := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Name, ResourceVersion: have.ResourceVersion,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta2.GroupVersion.String(), Kind: "NodePool", Name: owner.Name, UID: owner.UID,
			}},
		},
		Type: corev1.SecretTypeOpaque, Data: keys.AuthorityData(a),
	}
	if same(have, want) {
		return a, nil, nil
	}
	// What it signs is not given to anybody before it is kept.
	return a, nil, objects.Apply(ctx, s.cfg.Client, want, keys.FieldOwner)
}

func same(have, want *corev1.Secret) bool {
	return maps.EqualFunc(have.Data, want.Data, bytes.Equal) && len(have.OwnerReferences) == 1 &&
		have.OwnerReferences[0].UID == want.OwnerReferences[0].UID
}

// tellHubs counts an answer, and says it in the log and, if it is no, in an Event: there are as many as there are nodes.
func (s *Signer) tellHubs(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, refused error) {
	logger := klog.FromContext(ctx).WithValues("request", csr.Name, "user", csr.Spec.Username)
	if refused == nil {
		s.hubs.WithLabelValues(resultSigned).Inc()
		logger.V(1).Info("Signed a hub's certificate")
		return
	}
	s.hubs.WithLabelValues(resultRefused).Inc()
	logger.Info("Refused a hub's certificate", "why", refused.Error())
	s.cfg.Events.Eventf(csr, nil, corev1.EventTypeWarning, reasonHubs, "Sign", "Not signed: %v", refused)
}
