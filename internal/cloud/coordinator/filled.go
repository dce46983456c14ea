package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"yurtcoordinator/internal/edge"
)

// Reasons of the conditions PoolResourcesComplete and PoolResourcesCurrent, besides ReasonNoReport.
const (
	// ReasonComplete: all of what the pool shares has come to the coordinator once.
	ReasonComplete = "Complete"
	// ReasonNotComplete: some of it has not come since the coordinator started.
	ReasonNotComplete = "NotComplete"
	// ReasonCurrent: the leader brings each change of it, too.
	ReasonCurrent = "Current"
	// ReasonNotCurrent: for some of it, changes do not come from the cloud.
	ReasonNotCurrent = "NotCurrent"
)

// fillings is what a pool's leader last reported of what the pool shares; nil means that it does not report, or not of this.
type fillings map[string]edge.Filling

// lacking returns the resources that are not as far as is says, sorted.
func (f fillings) lacking(is func(edge.Filling) bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !is(f[name]) {
			names = append(names, name)
		}
	}
	return names
}

func isCurrent(f edge.Filling) bool { return f == edge.FillingCurrent }

// filled says how far a coordinator has what its pool shares, as its two conditions say it.
func (f fillings) filled() (complete, current finding) {
	if len(f) == 0 {
		unknown := finding{Unknown: true, Reason: ReasonNoReport, Message: "Nobody reports which of the pool's " +
			"resources the coordinator has: nobody leads the pool, or its links are cut."}
		return unknown, unknown
	}
	all := strings.Join(slices.Sorted(maps.Keys(f)), ", ")
	complete = finding{OK: true, Reason: ReasonComplete, Message: "At the coordinator since it started: " + all + "."}
	if lacks := f.lacking(edge.Filling.Complete); len(lacks) > 0 {
		complete = finding{Reason: ReasonNotComplete, Message: fmt.Sprintf("Not all have come to the coordinator since it "+
			"started: %s. The coordinator refuses them to programs, and kubectl on site warns. If this lasts, the log of the "+
			"leader's yurthub says why they can't be pushed.", strings.Join(lacks, ", "))}
	}
	current = finding{OK: true, Reason: ReasonCurrent, Message: "The leader brings each change: " + all + "."}
	if lacks := f.lacking(isCurrent); len(lacks) > 0 {
		current = finding{Reason: ReasonNotCurrent, Message: fmt.Sprintf("Changes in the cloud do not come to the coordinator: "+
			"%s. Hubs read them in the cloud, and kubectl on site warns. If this lasts, see the log of the leader's yurthub.",
			strings.Join(lacks, ", "))}
	}
	return complete, current
}
