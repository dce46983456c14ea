package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// Objects are the objects about pools that a server has. A coordinator has no NodePools and no YurtCoordinators, and only its own
// pool's Leases.
type Objects struct {
	// Within is the pool whose coordinator was asked; empty means that the cloud was.
	Within       edge.PoolName
	Pools        []v1beta2.NodePool
	Coordinators []v1alpha1.YurtCoordinator
	// Nodes are all Nodes of a coordinator. In the cloud none are read: NodePools count them.
	Nodes []corev1.Node
	// Leases are Leases of kube-node-lease, by name: the pools' reports and, at a coordinator, the heartbeats of its nodes. In
	// the cloud these are all Leases if a leader reports for a pool without a YurtCoordinator.
	Leases map[string]coordinationv1.Lease
	// Controller is the Lease that the leading coordinator-controller renews; nil means that it could not be read.
	Controller *coordinationv1.Lease
	// Election is the Lease by which hubs elect their leader; nil in the cloud, and before the first election.
	Election *coordinationv1.Lease
}

// Pool is what is known of one pool.
type Pool struct {
	Name string `json:"-"`
	// Nodes counts the pool's nodes. Ready counts those that the cloud calls Ready.
	Nodes int `json:"nodes"`
	Ready int `json:"ready"`
	// Coordinator is one of the words below, or the reason why the pool has no coordinator.
	Coordinator string `json:"coordinator"`
	// CoordinatorNode is the node that the coordinator runs on.
	CoordinatorNode string `json:"coordinatorNode,omitempty"`
	// Leader is the node whose hub speaks for the pool; empty means that none is known.
	Leader string `json:"leader,omitempty"`
	// LeaderSaid is the time of the leader's last report.
	LeaderSaid *time.Time `json:"leaderSaid,omitempty"`
	// OtherLeaders lead at coordinators in higher slots that the Leader does not reach.
	OtherLeaders []edge.SlotLeader `json:"otherLeaders,omitempty"`
	// Delegated are the nodes whose own link is down: a leader forwards their heartbeats, or a neighbour relays. Outside are the
	// nodes that reach none of the pool's coordinators.
	Delegated []string `json:"delegated"`
	Outside   []string `json:"outside"`
	// Kubelets says how the coordinator knows nodes' kubelets, or why it can't, as far as that is reported.
	Kubelets map[edge.NodeName]edge.KubeletWay `json:"kubelets,omitempty"`
	// HubVersions are the releases of the nodes' hubs, as far as they are reported. CoordinatorVersions are those of the
	// coordinators' images, in the order of their slots.
	HubVersions         map[edge.NodeName]string `json:"hubVersions,omitempty"`
	CoordinatorVersions []string                 `json:"coordinatorVersions,omitempty"`
	// Problems says what is wrong, each in a sentence; a pool without any is fine.
	Problems []string `json:"problems,omitempty"`

	// conditions are those of its YurtCoordinator.
	conditions []v1alpha1.YurtCoordinatorCondition
}

// Values of Pool.Coordinator, besides the reasons of a YurtCoordinator's conditions.
const (
	CoordinatorReady = "Ready"
	CoordinatorNone  = "None"
	CoordinatorNew   = "New"
)

// PoolsOf returns the state of each pool, sorted by name.
func PoolsOf(o Objects, now time.Time) []Pool {
	byName := make(map[string]*Pool)
	pool := func(name string) *Pool {
		if byName[name] == nil {
			byName[name] = &Pool{Name: name, Coordinator: CoordinatorNone, Delegated: []string{}, Outside: []string{}}
		}
		return byName[name]
	}
	members := map[string][]string{}
	for i := range o.Pools {
		p := pool(o.Pools[i].Name)
		p.Ready = int(o.Pools[i].Status.ReadyNodeNum)
		p.Nodes = p.Ready + int(o.Pools[i].Status.UnreadyNodeNum)
		members[p.Name] = o.Pools[i].Status.Nodes
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		p := pool(cmp.Or(n.Labels[edge.LabelNodePool], string(o.Within)))
		p.Nodes++
		if readyOf(n) == corev1.ConditionTrue {
			p.Ready++
		}
		if lease, ok := o.Leases[n.Name]; ok && delegated(&lease) {
			p.Delegated = append(p.Delegated, n.Name)
		}
	}
	for i := range o.Coordinators {
		describe(pool(o.Coordinators[i].Spec.NodePool), &o.Coordinators[i])
	}
	if o.Within != "" {
		within(pool(string(o.Within)), o, now)
	}
	pools := make([]Pool, 0, len(byName))
	for _, p := range byName {
		reports, valid := reportsOf(o, p.Name, now)
		if o.Within != "" {
			elected(p, o.Election, now)
		} else if len(reports) > 0 {
			leads(p, reports, valid)
		}
		if p.Coordinator == CoordinatorNone {
			untold(p, members[p.Name], o, reports)
		}
		if ways := kubeletsOf(o, reports); len(ways) > 0 {
			p.Kubelets = ways
		}
		if is := hubVersionsOf(o, reports); len(is) > 0 {
			p.HubVersions = is
		}
		slices.Sort(p.Delegated)
		p.Delegated = slices.Compact(p.Delegated)
		p.Problems = problemsOf(p)
		p.conditions = nil
		pools = append(pools, *p)
	}
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	return pools
}

// describe adds a YurtCoordinator's state. If a pool has two, the accepted one counts.
func describe(p *Pool, c *v1alpha1.YurtCoordinator) {
	says := CoordinatorNew
	for _, cond := range c.Status.Conditions {
		switch {
		case cond.Type == v1alpha1.YurtCoordinatorPending && cond.Status == v1alpha1.ConditionTrue:
			says = cmp.Or(cond.Reason, "Pending")
		case cond.Type == v1alpha1.YurtCoordinatorReady && cond.Status == v1alpha1.ConditionTrue:
			says = CoordinatorReady
		case cond.Type == v1alpha1.YurtCoordinatorReady && says == CoordinatorNew:
			says = cmp.Or(cond.Reason, "NotReady")
		}
	}
	if p.Coordinator == CoordinatorNone || says == CoordinatorReady {
		p.Coordinator, p.CoordinatorNode, p.conditions = says, c.Status.NodeName, c.Status.Conditions
		p.Outside = append([]string{}, c.Status.OutsidePoolNodes...)
		p.Delegated = append(p.Delegated, c.Status.DelegatedNodes...)
		p.CoordinatorVersions = nil
		for _, one := range c.Status.Coordinators {
			if one.Version != "" {
				p.CoordinatorVersions = append(p.CoordinatorVersions, one.Version)
			}
		}
	}
}

// untold adds what is known without a YurtCoordinator, for example where another controller runs the coordinator. The nodes'
// Leases say which nodes are delegated. A valid report means that there is a coordinator, and says which nodes the leader hears
// of there.
func untold(p *Pool, nodes []string, o Objects, reports edge.Reports) {
	for _, n := range nodes {
		if lease, ok := o.Leases[n]; ok && delegated(&lease) {
			p.Delegated = append(p.Delegated, n)
		}
	}
	if p.Leader == "" {
		return
	}
	p.Coordinator = CoordinatorReady
	reached := reports.Reached()
	for _, n := range nodes {
		if reached != nil && !slices.Contains(reached, edge.NodeName(n)) {
			p.Outside = append(p.Outside, n)
		}
	}
}

// writtenFor returns all reports of a pool.
func writtenFor(o Objects, pool string) (all []*coordinationv1.Lease) {
	for _, slot := range edge.Slots() {
		if lease, ok := o.Leases[edge.PoolName(pool).ReportLease(slot)]; ok {
			all = append(all, &lease)
		}
	}
	return all
}

// reportsOf returns the reports of a pool that are valid or, if none is, the last that was; valid says which.
func reportsOf(o Objects, pool string, now time.Time) (reports edge.Reports, valid bool) {
	var is []*coordinationv1.Lease
	var last edge.Reports
	var lastSaid time.Time
	for _, l := range writtenFor(o, pool) {
		said := ptr.Deref(renewed(l), time.Time{})
		if last == nil || said.After(lastSaid) {
			last, lastSaid = edge.Reports{l}, said
		}
		if now.Sub(said) < edge.ReportLasts(l.Spec.LeaseDurationSeconds) {
			is = append(is, l)
		}
	}
	if len(is) > 0 {
		return edge.ReportsOf(is), true
	}
	return last, false
}

// kubeletsOf returns how the kubelets of a pool are known: by the pool's reports, or at a coordinator by each hub's own word.
func kubeletsOf(o Objects, reports edge.Reports) map[edge.NodeName]edge.KubeletWay {
	if o.Within == "" {
		return reports.Kubelets()
	}
	all := map[edge.NodeName]edge.KubeletWay{}
	for name, lease := range o.Leases {
		if said, ok := edge.ParseKubeletServing(lease.Annotations[edge.AnnotationKubelet]); ok {
			all[edge.NodeName(name)] = said.Way
		}
	}
	return all
}

// hubVersionsOf returns of which releases a pool's hubs are: by the pool's reports, or at a coordinator by each hub's own word.
func hubVersionsOf(o Objects, reports edge.Reports) map[edge.NodeName]string {
	if o.Within == "" {
		return reports.Versions()
	}
	all := map[edge.NodeName]string{}
	for name, lease := range o.Leases {
		if said := lease.Annotations[edge.AnnotationHubVersion]; edge.IsVersion(said) {
			all[edge.NodeName(name)] = said
		}
	}
	return all
}

// versions returns each version once, with how many there are of it if there are several.
func versions(all []string) string {
	count := map[string]int{}
	for _, v := range all {
		count[v]++
	}
	var texts []string
	for _, v := range slices.Sorted(maps.Keys(count)) {
		if len(count) > 1 {
			v = fmt.Sprintf("%s (%d)", v, count[v])
		}
		texts = append(texts, v)
	}
	return strings.Join(texts, ", ")
}

// within adds what a coordinator shows by itself: that it answers, and whose heartbeats it has. If it has no Nodes, a node whose
// heartbeat is not too old counts as ready.
func within(p *Pool, o Objects, now time.Time) {
	p.Coordinator = CoordinatorReady
	if len(o.Nodes) > 0 {
		return
	}
	for name, lease := range o.Leases {
		p.Nodes++
		if age(&lease, now) <= patience(&lease) {
			p.Ready++
		}
		if delegated(&lease) || relayedBy(&lease) != "" {
			p.Delegated = append(p.Delegated, name)
		}
	}
}

// leads says who leads a pool: by its reports, if they are valid.
func leads(p *Pool, reports edge.Reports, valid bool) {
	p.LeaderSaid = renewed(reports[0])
	if !valid {
		return
	}
	all := reports.Leaders()
	p.Leader = string(all[0].Leader)
	if len(all) > 1 {
		p.OtherLeaders = all[1:]
	}
}

// elected says who leads at a coordinator.
func elected(p *Pool, lease *coordinationv1.Lease, now time.Time) {
	if lease == nil || lease.Spec.HolderIdentity == nil || lease.Spec.RenewTime == nil {
		return
	}
	p.LeaderSaid = renewed(lease)
	// Twice its duration: clocks differ, and nothing depends on it here.
	lasts := 2 * time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if now.Sub(*p.LeaderSaid) < lasts {
		p.Leader = *lease.Spec.HolderIdentity
	}
}

// relayedBy returns the node over whose line the Lease's node reports itself; empty means over its own, or not at all.
func relayedBy(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return string(edge.ParseRelayed(l.Annotations[edge.AnnotationRelayedBy]).By)
}

// delegated reads the mark of a Lease: an annotation in the cloud, also a label at a coordinator.
func delegated(l *coordinationv1.Lease) bool {
	return l.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn
}

func readyOf(n *corev1.Node) corev1.ConditionStatus {
	if c := conditionOf(n, corev1.NodeReady); c != nil {
		return c.Status
	}
	return corev1.ConditionUnknown
}

func conditionOf(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}
