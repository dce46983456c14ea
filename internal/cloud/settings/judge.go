package settings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Reasons of the conditions.
const (
	// ReasonTold: all selected pools are told.
	ReasonTold = "Told"
	// ReasonNoPools: no pool is selected.
	ReasonNoPools = "NoPools"
	// ReasonTelling: some are not told yet.
	ReasonTelling = "Telling"
	// ReasonNotTold: some can't be told.
	ReasonNotTold = "NotTold"
	// ReasonBadSelector: nodepoolSelector can't be read.
	ReasonBadSelector = "BadSelector"

	// ReasonAllNodes: all nodes do as their pool is told.
	ReasonAllNodes = "AllNodes"
	// ReasonWaiting: some have not said so yet.
	ReasonWaiting = "Waiting"
	// ReasonRestartNeeded: some do so when their hubs start again.
	ReasonRestartNeeded = "RestartNeeded"
	// ReasonRefused: some can't.
	ReasonRefused = "Refused"

	// ReasonConflict and ReasonNoConflict say whether there is one.
	ReasonConflict   = "SamePriority"
	ReasonNoConflict = "NoConflict"
)

// maxGenerations is how many generations the status counts.
const maxGenerations = 8

// facts are what the status of a PoolSettings is made from.
type facts struct {
	settings *v1alpha1.PoolSettings
	badly    error // what is wrong with its selector
	pools    []poolFacts
	clashes  []clash
	// withCoordinators says that there is a controller of coordinators.
	withCoordinators bool
}

// poolFacts are about a pool that it selects.
type poolFacts struct {
	name   string
	record record
	failed error
	nodes  []corev1.Node
	site   site
}

// tally is how many nodes do what.
type tally struct{ updated, restart, refused, waiting int32 }

// statusOf returns the status of a PoolSettings.
func statusOf(f facts, now metav1.Time) (v1alpha1.PoolSettingsStatus, tally) {
	s := f.settings
	status := v1alpha1.PoolSettingsStatus{
		ObservedGeneration: s.Generation, Pools: int32(len(f.pools)), Conditions: slices.Clone(s.Status.Conditions),
		Upgrade: s.Status.Upgrade, // another controller's
	}
	set := func(kind string, is bool, reason, message string) {
		value := metav1.ConditionFalse
		if is {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: s.Generation,
			LastTransitionTime: now,
		})
	}
	var n tally
	var refused, restart, waiting, untold, failed []string
	generations := map[int64]int32{}
	for _, p := range f.pools {
		newest := p.record.newest()
		current := newest.From[s.Name] == s.Generation
		switch {
		case p.failed != nil:
			failed = append(failed, fmt.Sprintf("%s (%v)", p.name, p.failed))
		case !current:
			untold = append(untold, p.name)
		}
		for i := range p.nodes {
			status.Nodes++
			node := p.nodes[i].Name
			report, err := edge.ParseSettingsReport(p.nodes[i].Annotations[edge.AnnotationSettings])
			if g := p.record.of(s.Name, report.Runs); err == nil && g > 0 {
				generations[g]++
			}
			switch {
			case err == nil && current && report.Runs == newest.Generation:
				n.updated++
			case err == nil && report.State == edge.SettingsRefused:
				n.refused++
				refused = append(refused, fmt.Sprintf("%s (%s)", node, report.Why))
			case err == nil && report.State == edge.SettingsNeedRestart:
				n.restart++
				restart = append(restart, fmt.Sprintf("%s (%s)", node, report.Why))
			default:
				n.waiting++
				waiting = append(waiting, node)
			}
		}
	}
	status.UpdatedNodes = n.updated
	for _, g := range slices.SortedFunc(maps.Keys(generations), func(a, b int64) int { return cmp.Compare(b, a) }) {
		if len(status.Generations) < maxGenerations {
			status.Generations = append(status.Generations, v1alpha1.NodesOfGeneration{Generation: g, Nodes: generations[g]})
		}
	}
	switch {
	case f.badly != nil:
		set(v1alpha1.PoolSettingsReady, false, ReasonBadSelector, fmt.Sprintf("It selects no pool by labels: %v", f.badly))
	case len(failed) > 0:
		set(v1alpha1.PoolSettingsReady, false, ReasonNotTold, "These pools can't get the settings: "+edge.Some(failed))
	case len(untold) > 0:
		set(v1alpha1.PoolSettingsReady, false, ReasonTelling, "These pools have not got the settings yet: "+edge.Some(untold))
	case len(f.pools) == 0:
		set(v1alpha1.PoolSettingsReady, true, ReasonNoPools, "It selects no pool.")
	default:
		set(v1alpha1.PoolSettingsReady, true, ReasonTold, fmt.Sprintf("All pools have the settings: %d.", len(f.pools)))
	}
	switch {
	case len(refused) > 0:
		set(v1alpha1.PoolSettingsFollowed, false, ReasonRefused,
			"These nodes can't use the settings of their pool, and keep "+
				"the former ones: "+edge.Some(refused))
	case len(restart) > 0:
		set(v1alpha1.PoolSettingsFollowed, false, ReasonRestartNeeded,
			"These nodes apply all settings when their hubs restart: "+
				edge.Some(restart))
	case len(waiting) > 0:
		set(v1alpha1.PoolSettingsFollowed, false, ReasonWaiting,
			"These nodes have not reported yet. They may be cut off, or "+
				"have no hub that follows settings: "+edge.Some(waiting))
	default:
		set(v1alpha1.PoolSettingsFollowed, true, ReasonAllNodes, fmt.Sprintf("All nodes apply the settings: %d.",
			status.Nodes))
	}
	ofCoordinators(f, &status.Conditions, set)
	if len(f.clashes) > 0 {
		var texts []string
		for _, c := range f.clashes {
			texts = append(texts, c.String())
		}
		slices.Sort(texts)
		set(v1alpha1.PoolSettingsConflicting, true, ReasonConflict,
			"Another of the same priority has another value; the older "+
				"one wins. Give them different priorities: "+edge.Some(texts))
	} else {
		set(v1alpha1.PoolSettingsConflicting, false, ReasonNoConflict, "No other of the same priority has another value.")
	}
	return status, n
}
