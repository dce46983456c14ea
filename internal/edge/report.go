package edge

import (
	"maps"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// PrefixReports is what the names of annotations of reports begin with that came after v0.1.0's. The chart's policy
// forwarder-writes lets them pass, few and bounded, whether it knows them or not: so hubs may be newer than the chart.
const PrefixReports = "report.openyurt.io/"

// AnnotationReportBy, on the Lease that ReportLease names, says who has written all of the report, as ReportBy writes it.
const AnnotationReportBy = PrefixReports + "by"

// ReportBy returns the value of AnnotationReportBy of a report with this Lease's holder and term.
func ReportBy(lease *coordinationv1.Lease) string {
	holder, term := "", int32(0)
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.LeaseTransitions != nil {
		term = *lease.Spec.LeaseTransitions
	}
	return holder + "/" + strconv.Itoa(int(term))
}

// ReportOf returns the annotations of a Lease that its last writer stands for. A leader of v0.1.0 reports who reaches the
// coordinator, and what their links have carried; all else it leaves as another leader has written it.
func ReportOf(lease *coordinationv1.Lease) map[string]string {
	by, said := lease.Annotations[AnnotationReportBy]
	if !said || by == ReportBy(lease) {
		return lease.Annotations
	}
	own := maps.Clone(lease.Annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return key != AnnotationReachedNodes && key != AnnotationTraffic })
	return own
}
