package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var accessScenarios = []Scenario{{
	Name: "foreign-lease", Quick: true, Lab: pool, run: foreignLease,
	Doc: "certificates try what they must not do at the coordinator and the cloud: all refused, all logged",
}}

// Names of the certificates in the lab's keys that every API must refuse.
const (
	expiredCertificate = lab.ExpiredCertificate
	unknownCertificate = lab.UnknownCertificate
)

func foreignLease(t *T) {
	leader := t.settled(30 * time.Second)
	names := t.nodeNames()
	self := t.follower(leader)
	victim := names[(slices.Index(names, self)+1)%len(names)]
	node := t.coordinator(self)
	marker := len(t.refusals())
	attempts := 0
	refused := func(what string, err error) {
		attempts++
		switch {
		case err == nil:
			t.fail("allowed: %s", what)
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err):
			t.say("refused: %s: %v", what, err)
		default:
			t.fail("%s: refused, but not by an authorization: %w", what, err)
		}
	}

	leases := node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	foreign, err := leases.Get(t.ctx, victim, metav1.GetOptions{})
	t.must(err)
	foreign.Spec.RenewTime = ptr.To(metav1.NowMicro())
	_, err = leases.Update(t.ctx, foreign, metav1.UpdateOptions{})
	refused(fmt.Sprintf("%s renews the Lease of %s", self, victim), err)
	refused(fmt.Sprintf("%s deletes the Lease of %s", self, victim),
		leases.Delete(t.ctx, victim, metav1.DeleteOptions{}))
	_, err = leases.Create(t.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "p9-n9"}},
		metav1.CreateOptions{})
	refused(self+" creates the Lease of a node that is not there", err)

	system := node.CoordinationV1().Leases(edge.NamespaceSystem)
	for _, holder := range []string{victim, "somebody", ""} {
		election, err := system.Get(t.ctx, edge.LeaseElection, metav1.GetOptions{})
		t.must(err)
		if ptr.Deref(election.Spec.HolderIdentity, "") == holder {
			continue
		}
		election.Spec.HolderIdentity = &holder
		election.Spec.RenewTime = ptr.To(metav1.NowMicro())
		election.Spec.LeaseTransitions = ptr.To(ptr.Deref(election.Spec.LeaseTransitions, 0) + 1)
		_, err = system.Update(t.ctx, election, metav1.UpdateOptions{})
		for apierrors.IsConflict(err) { // the leader has renewed it meanwhile
			current, getErr := system.Get(t.ctx, edge.LeaseElection, metav1.GetOptions{})
			t.must(getErr)
			election.ResourceVersion = current.ResourceVersion
			_, err = system.Update(t.ctx, election, metav1.UpdateOptions{})
		}
		refused(fmt.Sprintf("%s writes the election Lease for %q", self, holder), err)
	}
	refused(self+" deletes the election Lease", system.Delete(t.ctx, edge.LeaseElection, metav1.DeleteOptions{}))
	_, err = node.CoreV1().Secrets(metav1.NamespaceAll).List(t.ctx, metav1.ListOptions{})
	refused(self+" lists Secrets", err)
	_, err = node.CoreV1().Secrets(edge.NamespaceSystem).Get(t.ctx, "any", metav1.GetOptions{})
	refused(self+" reads a Secret", err)

	operator := t.coordinator(lab.Operator)
	_, err = operator.CoreV1().Secrets(metav1.NamespaceAll).List(t.ctx, metav1.ListOptions{})
	refused("an operator lists Secrets", err)
	refused("an operator deletes a Lease",
		operator.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.ctx, victim, metav1.DeleteOptions{}))
	_, err = operator.CoreV1().Namespaces().Create(t.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	refused("an operator creates a Namespace", err)

	for _, name := range []string{unknownCertificate, expiredCertificate} {
		stranger := t.coordinator(name)
		_, err = stranger.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.ctx, victim, metav1.GetOptions{})
		refused("the "+name+" certificate reads a Lease", err)
		_, err = stranger.CoreV1().Pods(metav1.NamespaceAll).List(t.ctx, metav1.ListOptions{})
		refused("the "+name+" certificate lists Pods", err)
		refused("the "+name+" certificate deletes a Lease",
			stranger.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.ctx, victim, metav1.DeleteOptions{}))
	}
	t.eventually(5*time.Second, fmt.Sprintf("the coordinator has logged all %d refusals", attempts), func() error {
		if n := len(t.refusals()) - marker; n < attempts {
			return fmt.Errorf("%d refusals in its log", n)
		}
		return nil
	})

	t.cloudRefuses(self, victim)
	t.must(t.seen.neverNotReady(victim, t.start))
	t.figure("refused_attempts", float64(attempts))
}

// cloudRefuses tries what a node's identity, and the forwarding identity that it may use, must not do in the cloud.
func (t *T) cloudRefuses(self, victim string) {
	forwarder := edge.PoolName("p1").ForwardingUser()
	as := func(certificate, user string) kubernetes.Interface {
		access, err := t.lab.CloudConfigAs(certificate)
		t.must(err)
		access.Impersonate.UserName = user
		client, err := kubernetes.NewForConfig(access)
		t.must(err)
		return client
	}
	forbidden := func(what string, err error) {
		if !apierrors.IsForbidden(err) {
			t.fail("not forbidden in the cloud: %s: %v", what, err)
		}
		t.say("refused in the cloud: %s", what)
	}
	_, err := as(self, "").CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.ctx, victim, metav1.GetOptions{})
	forbidden(self+" reads the Lease of "+victim+" as itself", err)
	_, err = as(self, forwarder).CoreV1().Nodes().List(t.ctx, metav1.ListOptions{})
	forbidden("the forwarding identity lists Nodes", err)
	_, err = as(self, forwarder).CoordinationV1().Leases(edge.NamespaceSystem).List(t.ctx, metav1.ListOptions{})
	forbidden("the forwarding identity lists other Leases", err)
	_, err = as(self, edge.PoolName("p2").ForwardingUser()).CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Get(t.ctx, victim, metav1.GetOptions{})
	forbidden(self+" uses another pool's forwarding identity", err)
	_, err = as(self, "system:admin").CoreV1().Nodes().List(t.ctx, metav1.ListOptions{})
	forbidden(self+" impersonates an administrator", err)
	_, err = as(self, forwarder).CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.ctx, "p9-n9",
		metav1.GetOptions{})
	forbidden("the forwarding identity reads the Lease of a node outside its pool", err)
}

// refusals returns the lines in which the coordinator has logged a refusal.
func (t *T) refusals() []string { return t.coordinatorSays("Refused", "refused") }

// coordinatorSays returns the lines of the coordinator's log that have one of these in them.
func (t *T) coordinatorSays(texts ...string) []string {
	path, err := t.lab.Log(t.coordinatorNode(), string(lab.Coordinator))
	t.must(err)
	content, err := os.ReadFile(path)
	t.must(err)
	var lines []string
	for line := range strings.Lines(string(content)) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			lines = append(lines, line)
		}
	}
	return lines
}
