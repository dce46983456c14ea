package charts

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// laterReports tries what leaders of a release to come may report under this chart: what nobody here knows passes if it has the
// name of such, and is bounded. The report is left as it is.
func laterReports(t *testing.T, as client.Client, report *coordinationv1.Lease) {
	t.Helper()
	later := func(n, size int) func(*beat) {
		return func(l *beat) {
			for i := range n {
				l.Annotations[fmt.Sprintf("%snew-%d", edge.PrefixReports, i)] = strings.Repeat("x", size)
			}
		}
	}
	add := func(key, value string) func(*beat) { return func(l *beat) { l.Annotations[key] = value } }
	for what, test := range map[string]struct {
		edit func(*beat)
		want string
	}{
		"one annotation of a later release": {later(1, 10), ""},
		"as many as there may be":           {later(16, 4096), ""},
		"one too many":                      {later(17, 1), "16 annotations"},
		"one too long":                      {later(1, 65537), "65536 characters"},
		"too much together":                 {later(16, 4097), "65536 characters"},
		"another name":                      {add("openyurt.io/new", "x"), "no other annotations"},
		"a name that only looks alike":      {add("report.openyurt.io.evil/new", "x"), "no other annotations"},
		"a mark":                            {add(edge.DelegateHeartbeat, edge.DelegateHeartbeatOn), "no other annotations"},
	} {
		l := report.DeepCopy()
		test.edit(l)
		expect(t, what, as.Update(t.Context(), l, client.DryRunAll), test.want)
	}
	l := report.DeepCopy()
	later(2, 5)(l)
	expect(t, "a later release's report", as.Update(t.Context(), l), "")
	delete(l.Annotations, edge.PrefixReports+"new-0")
	expect(t, "without one of them", as.Update(t.Context(), l), "")
	delete(l.Annotations, edge.PrefixReports+"new-1")
	expect(t, "an older leader's report after that", as.Update(t.Context(), l), "")
	*report = *l

	beat := heartbeatOf("fw-1", true)
	if err := as.Get(t.Context(), client.ObjectKeyFromObject(beat), beat); err != nil {
		t.Fatal(err)
	}
	beat.Annotations[edge.DelegateHeartbeat] = edge.DelegateHeartbeatOn
	beat.Annotations[edge.PrefixReports+"new"] = "x"
	expect(t, "on a heartbeat", as.Update(t.Context(), beat, client.DryRunAll), "no other annotations")
}
