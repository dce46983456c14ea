package ops

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var accessScenarios = []kit.Scenario{{
	Name: "foreign-lease", Tier: kit.Core, Lab: kit.OnePool, Run: foreignLease,
	Doc: "Certificates try what they must not do: other nodes' Leases, Secrets, unknown and expired certificates, at the " +
		"coordinator and in the cloud. All are refused and logged.",
}}

// Names of the certificates in the lab's keys that every API must refuse.
const (
	expiredCertificate = lab.ExpiredCertificate
	unknownCertificate = lab.UnknownCertificate
)

func foreignLease(t *kit.T) {
	leader := t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	self := t.Pool.Follower(leader)
	victim := names[(slices.Index(names, self)+1)%len(names)]
	node := t.Pool.Coordinator(self)
	marker := refusals(t)
	attempts := 0
	refused := func(what string, err error) {
		attempts++
		switch {
		case err == nil:
			t.Fail("allowed: %s", what)
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err):
			t.Say("refused: %s: %v", what, err)
		case kit.ShutOut(err.Error()):
			t.Say("shut out: %s: %v", what, err)
		default:
			t.Fail("%s: refused, but not by an authorization: %w", what, err)
		}
	}

	leases := node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var foreign *coordinationv1.Lease
	t.Eventually(30*time.Second, "the coordinator has a copy of the victim's Lease", func() (err error) {
		foreign, err = leases.Get(t.Ctx, victim, metav1.GetOptions{})
		return err
	})
	foreign.Spec.RenewTime = ptr.To(metav1.NowMicro())
	_, err := leases.Update(t.Ctx, foreign, metav1.UpdateOptions{})
	refused(fmt.Sprintf("%s renews the Lease of %s", self, victim), err)
	refused(fmt.Sprintf("%s deletes the Lease of %s", self, victim),
		leases.Delete(t.Ctx, victim, metav1.DeleteOptions{}))
	_, err = leases.Create(t.Ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "p9-n9"}},
		metav1.CreateOptions{})
	refused(self+" creates the Lease of a node that is not there", err)

	system := node.CoordinationV1().Leases(edge.NamespaceSystem)
	for _, holder := range []string{victim, "somebody", ""} {
		election, err := system.Get(t.Ctx, edge.LeaseElection, metav1.GetOptions{})
		t.Must(err)
		if ptr.Deref(election.Spec.HolderIdentity, "") == holder {
			continue
		}
		election.Spec.HolderIdentity = &holder
		election.Spec.RenewTime = ptr.To(metav1.NowMicro())
		election.Spec.LeaseTransitions = ptr.To(ptr.Deref(election.Spec.LeaseTransitions, 0) + 1)
		_, err = system.Update(t.Ctx, election, metav1.UpdateOptions{})
		for apierrors.IsConflict(err) { // the leader has renewed it meanwhile
			current, getErr := system.Get(t.Ctx, edge.LeaseElection, metav1.GetOptions{})
			t.Must(getErr)
			election.ResourceVersion = current.ResourceVersion
			_, err = system.Update(t.Ctx, election, metav1.UpdateOptions{})
		}
		refused(fmt.Sprintf("%s writes the election Lease for %q", self, holder), err)
	}
	refused(self+" deletes the election Lease", system.Delete(t.Ctx, edge.LeaseElection, metav1.DeleteOptions{}))
	_, err = node.CoreV1().Secrets(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
	refused(self+" lists Secrets", err)
	_, err = node.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, "any", metav1.GetOptions{})
	refused(self+" reads a Secret", err)

	operator := t.Pool.Coordinator(lab.Operator)
	_, err = operator.CoreV1().Secrets(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
	refused("an operator lists Secrets", err)
	refused("an operator deletes a Lease",
		operator.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Ctx, victim, metav1.DeleteOptions{}))
	_, err = operator.CoreV1().Namespaces().Create(t.Ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	refused("an operator creates a Namespace", err)

	for _, name := range []string{unknownCertificate, expiredCertificate} {
		stranger := t.Pool.Coordinator(name)
		_, err = stranger.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, victim, metav1.GetOptions{})
		refused("the "+name+" certificate reads a Lease", err)
		_, err = stranger.CoreV1().Pods(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
		refused("the "+name+" certificate lists Pods", err)
		refused("the "+name+" certificate deletes a Lease",
			stranger.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Ctx, victim, metav1.DeleteOptions{}))
	}
	t.Eventually(10*time.Second, fmt.Sprintf("the coordinator has logged all %d refusals", attempts), func() error {
		_, err := node.CoreV1().Secrets(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
		refused(self+" lists Secrets, and the log counts what was too much for a second", err)
		if n := refusals(t) - marker; n < attempts {
			return fmt.Errorf("%d refusals in its log", n)
		}
		return t.Pool.Audited(edge.NodeName(self).User(), "/api/v1/secrets", "what its hub does")
	})

	cloudRefuses(t, self, victim)
	t.NeverNotReady(t.Start, victim)
	t.Figure("refused_attempts", float64(attempts))
}

// cloudRefuses tries what a node's identity, and the forwarding identity that it may use, must not do in the cloud.
func cloudRefuses(t *kit.T, self, victim string) {
	forwarder := edge.PoolName("p1").ForwardingUser()
	as := func(certificate, user string) kubernetes.Interface {
		access, err := t.Lab.CloudConfigAs(certificate)
		t.Must(err)
		access.Impersonate.UserName = user
		client := t.Client(access)
		return client
	}
	forbidden := func(what string, err error) {
		if !apierrors.IsForbidden(err) {
			t.Fail("not forbidden in the cloud: %s: %v", what, err)
		}
		t.Say("refused in the cloud: %s", what)
	}
	_, err := as(self, "").CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, victim, metav1.GetOptions{})
	forbidden(self+" reads the Lease of "+victim+" as itself", err)
	_, err = as(self, forwarder).CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
	forbidden("the forwarding identity lists Nodes", err)
	_, err = as(self, forwarder).CoordinationV1().Leases(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{})
	forbidden("the forwarding identity lists other Leases", err)
	_, err = as(self, edge.PoolName("p2").ForwardingUser()).CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Get(t.Ctx, victim, metav1.GetOptions{})
	forbidden(self+" uses another pool's forwarding identity", err)
	_, err = as(self, "system:admin").CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
	forbidden(self+" impersonates an administrator", err)
	_, err = as(self, forwarder).CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, "p9-n9",
		metav1.GetOptions{})
	forbidden("the forwarding identity reads the Lease of a node outside its pool", err)
}

// refusals returns how many refusals the coordinator has logged, with those that are only counted there.
func refusals(t *kit.T) (n int) {
	audit, others := t.Pool.CoordinatorSays()
	for _, e := range audit {
		if e.ResponseStatus.Code >= http.StatusBadRequest {
			suppressed, err := strconv.Atoi(e.Annotations[edge.AnnotationSuppressed])
			t.Must(err)
			n += 1 + suppressed
		}
	}
	return n + len(slices.DeleteFunc(others, func(l string) bool { return !strings.Contains(l, "Refused a connection") }))
}
