package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/apis/coordination"
	conversion "k8s.io/kubernetes/pkg/apis/coordination/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// leaseReadTimeout bounds the one read that a decision about leader-informer-sync needs, from this process's memory.
const leaseReadTimeout = 5 * time.Second

// poolLeaseName is the plugin's name in metrics.
const poolLeaseName = "PoolLease"

// Heartbeats hears of each heartbeat that a node is allowed to write. Its methods do not block.
type Heartbeats interface {
	// Renewed is called for each heartbeat with a new renewTime. lease is the duration of the node's Lease.
	Renewed(node edge.NodeName, lease time.Duration)
	// Relays is called for each write of a node's Lease, after Renewed if that is called, too. at is where the node's hub relays;
	// an invalid address means nowhere.
	Relays(node edge.NodeName, at netip.AddrPort)
}

// NewAdmission returns the admission plugins of each write: NodeRestriction, then poolLease. host is the coordinator's own
// node, whose Lease gets the annotation edge.AnnotationCoordinatorHost. Empty means that no Lease gets it.
func NewAdmission(
	factory informers.SharedInformerFactory, authz authorizer.Authorizer, host edge.NodeName, elected *Election,
	heard Heartbeats,
) (admission.Interface, error) {
	identifier := nodeidentifier.NewDefaultNodeIdentifier()
	restriction := noderestriction.NewPlugin(identifier)
	restriction.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	restriction.SetExternalKubeInformerFactory(factory)
	restriction.SetAuthorizer(authz)
	if err := restriction.ValidateInitialization(); err != nil {
		return nil, err
	}
	leases := &poolLease{nodes: identifier, host: host, election: elected, heard: heard}
	// Two of Kubernetes' plugins are left out. NamespaceLifecycle would refuse a kubelet's Event about a Pod, because hubs push
	// Pods without their Namespaces. ServiceAccount asks for default accounts, which no controller makes here.
	return admissionmetrics.WithStepMetrics(admission.NewChainHandler(
		admissionmetrics.WithControllerMetrics(nodeRestriction{restriction}, noderestriction.PluginName),
		admissionmetrics.WithControllerMetrics(leases, poolLeaseName),
	)), nil
}

// poolLeases are the pool's own, which exist from the start.
var poolLeases = []string{edge.LeaseElection, edge.LeaseInformerSync, edge.LeaseFiller}

func isPoolLease(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == coordination.Resource("leases") &&
		a.GetNamespace() == edge.NamespaceSystem &&
		slices.Contains(poolLeases, a.GetName())
}

// nodeRestriction wraps Kubernetes' plugin of that name. Of Leases, the plugin lets a node write only its own heartbeat. The
// wrapper lets the pool's own Leases pass, because poolLease decides about them.
type nodeRestriction struct {
	*noderestriction.Plugin
}

func (n nodeRestriction) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isPoolLease(a) {
		return nil
	}
	return n.Plugin.Admit(ctx, a, o)
}

// poolLease lets a node write Leases only in its own name. RBAC says which Leases a node may write; poolLease says what it may
// write into them, and when. It is a compiled-in plugin, not a ValidatingAdmissionPolicy. A policy needs memory for its CEL
// environment, and can't know how long a Lease has stayed unchanged.
type poolLease struct {
	nodes    nodeidentifier.NodeIdentifier
	host     edge.NodeName // the coordinator's node; may be empty
	election *Election
	heard    Heartbeats
}

var (
	_ admission.MutationInterface   = &poolLease{}
	_ admission.ValidationInterface = &poolLease{}
)

// Handles implements admission.Interface.
func (p *poolLease) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit marks the heartbeat of the coordinator's own node, and removes the mark from any other.
func (p *poolLease) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != coordination.Resource("leases") ||
		a.GetNamespace() != core.NamespaceNodeLease {
		return nil
	}
	lease, ok := a.GetObject().(*coordination.Lease)
	if !ok || p.host == "" {
		return nil
	}
	if lease.Name != string(p.host) {
		delete(lease.Annotations, edge.AnnotationCoordinatorHost)
		return nil
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[edge.AnnotationCoordinatorHost] = "true"
	return nil
}

// Validate refuses what a node must not write.
func (p *poolLease) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != coordination.Resource("leases") {
		return nil
	}
	name, isNode := p.nodes.NodeIdentity(a.GetUserInfo())
	if !isNode {
		return nil // RBAC lets nobody else write a Lease but this process itself
	}
	if err := fits(a); err != nil {
		return err
	}
	if err := p.decide(ctx, edge.NodeName(name), a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// fits refuses a write after which the whole Lease would be too large, because each later write of the Lease would cost a copy of
// it, and each watch two copies.
func fits(a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordination.Lease)
	if !ok {
		return nil
	}
	var stored coordinationv1.Lease
	if err := conversion.Convert_coordination_Lease_To_v1_Lease(lease, &stored, nil); err != nil {
		return err
	}
	if size := stored.Size(); size > exchange.MaxLease {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the Lease would have %d bytes, and has at most %d here; "+
			"write fewer annotations and owner references", size, exchange.MaxLease))
	}
	return nil
}

func (p *poolLease) decide(ctx context.Context, caller edge.NodeName, a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordination.Lease)
	if !ok {
		return fmt.Errorf("not a Lease but a %T", a.GetObject())
	}
	next := internalMark(lease)
	var old leaseMark
	if stored, ok := a.GetOldObject().(*coordination.Lease); ok && stored != nil {
		old = internalMark(stored)
	}
	if a.GetNamespace() == core.NamespaceNodeLease {
		if err := decideHeartbeat(caller, next.holder); err != nil || a.IsDryRun() {
			return err
		}
		if next.renewed != old.renewed {
			p.heard.Renewed(caller, next.term)
		}
		p.heard.Relays(caller, relaysAt(lease.Annotations))
		return nil
	}
	if !isPoolLease(a) {
		return errors.New("not a Lease of the pool")
	}
	var err error
	switch live := func() bool { return p.election.terms.Live(a.GetName(), old) }; a.GetName() {
	case edge.LeaseElection:
		err = decideElection(caller, old, next, live(), p.election.vacancy.mayTake())
	case edge.LeaseFiller:
		err = p.decideFiller(ctx, caller, old, next, live())
	default:
		err = p.decideSync(ctx, caller, old, next)
	}
	if err == nil && !a.IsDryRun() {
		p.admitted(a.GetName(), lease, next)
	}
	return err
}

// admitted notes what is about to be stored.
func (p *poolLease) admitted(name string, lease *coordination.Lease, next leaseMark) {
	switch name {
	case edge.LeaseInformerSync:
		p.election.declared.admitted(lease)
	case edge.LeaseElection:
		p.election.terms.Admitted(name, next)
		p.election.vacancy.admitted()
	default:
		p.election.terms.Admitted(name, next)
	}
}

func (p *poolLease) decideFiller(ctx context.Context, caller edge.NodeName, old, next leaseMark, live bool) error {
	leader, err := p.election.leader(ctx)
	if err != nil {
		return err
	}
	return decideFiller(caller, old, next, live, p.election.unled(leader))
}

func (p *poolLease) decideSync(ctx context.Context, caller edge.NodeName, old, next leaseMark) error {
	stored, err := p.election.leader(ctx)
	if err != nil {
		return err
	}
	return decideSync(caller, old, next, stored.holder)
}

func internalMark(lease *coordination.Lease) leaseMark {
	return leaseMark{
		holder:      edge.NodeName(valueOf(lease.Spec.HolderIdentity)),
		transitions: valueOf(lease.Spec.LeaseTransitions),
		renewed:     valueOf(lease.Spec.RenewTime).UnixMicro(),
		term:        seconds(lease.Spec.LeaseDurationSeconds),
	}
}

func seconds(n *int32) time.Duration { return time.Duration(valueOf(n)) * time.Second }

func valueOf[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
