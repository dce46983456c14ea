package openings

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

var (
	noon  = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	later = noon.Add(90 * time.Second)

	of = teller{
		node: "n1", pool: "p1", instance: "abcdefghijklmnop",
		about: corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "p1", UID: "uid"},
	}
)

func exec(act edge.Act) edge.Opening {
	return edge.Opening{
		Number: 7, Count: 1, First: noon, Last: noon, Attempt: edge.Attempt{
			Act: act, User: "ana", Groups: "openyurt:coordinators:debug", Certificate: "X509SHA256=00", Serial: "1f",
			Source: "10.0.0.9", Stream: "exec", Namespace: "shop", Pod: "till", Container: "c", Program: "sh",
		},
	}
}

func TestMessages(t *testing.T) {
	const by = "; from 10.0.0.9; certificate X509SHA256=00, serial 1f"
	for _, tc := range []struct {
		name, reason, want string
		act                edge.Act
		change             func(*edge.Opening)
	}{
		{"still open", "PodOpened", "ana (openyurt:coordinators:debug) opened exec of sh in Pod shop/till, container c at " +
			"2030-01-02T12:00:00Z, still open then" + by, edge.ActOpened, func(*edge.Opening) {}},
		{"over", "PodOpened", "ana (openyurt:coordinators:debug) opened exec of sh in Pod shop/till, container c at " +
			"2030-01-02T12:00:00Z, ended at 2030-01-02T12:01:30Z" + by, edge.ActOpened,
			func(o *edge.Opening) { o.Over, o.End = 1, &later }},
		{"many", "PodOpened", "ana (openyurt:coordinators:debug) opened exec of sh in Pod shop/till, container c, 3 times from " +
			"2030-01-02T12:00:00Z to 2030-01-02T12:01:30Z, 2 still open then" + by, edge.ActOpened,
			func(o *edge.Opening) { o.Count, o.Last, o.Over, o.End = 3, later, 1, &noon }},
		{"too many of a user", "PodOpened", "ana (g) opened streams into Pods, too many to name, 3000 times from " +
			"2030-01-02T12:00:00Z to 2030-01-02T12:01:30Z, ended at 2030-01-02T12:01:30Z", edge.ActOpened, func(o *edge.Opening) {
			o.Attempt = edge.Attempt{Act: edge.ActOpened, User: "ana", Groups: "g"}
			o.Count, o.Over, o.Last, o.End = 3000, 3000, later, &later
		}},
		{"ended", "PodOpeningEnded", "ana (openyurt:coordinators:debug): exec of sh in Pod shop/till, container c, opened at " +
			"2030-01-02T12:00:00Z, ended at 2030-01-02T12:01:30Z" + by + "; it was told in abcdefghijklmnop.5", edge.ActEnded,
			func(o *edge.Opening) { o.Last, o.Of = later, 5 }},
		{"refused", "PodOpeningRefused", "ana (openyurt:coordinators:debug) was refused exec of sh in Pod shop/till, container " +
			"c at 2030-01-02T12:00:00Z: because" + by, edge.ActRefused, func(o *edge.Opening) { o.Reason = "because" }},
		{"refused to too many", "PodOpeningRefused", "Somebody, of too many to name, was refused streams into Pods, too many " +
			"to name, 9 times from 2030-01-02T12:00:00Z to 2030-01-02T12:01:30Z", edge.ActRefused, func(o *edge.Opening) {
			o.Attempt = edge.Attempt{Act: edge.ActRefused}
			o.Count, o.Last = 9, later
		}},
		{"what a caller makes up", "PodOpeningRefused", `"a\nb" was refused portforward in Pod "\u202en"/` +
			strings.Repeat("x", maxText) + "… at 2030-01-02T12:00:00Z", edge.ActRefused, func(o *edge.Opening) {
			o.Attempt = edge.Attempt{
				Act: edge.ActRefused, User: "a\nb", Stream: "portforward", Namespace: "\u202en", Pod: strings.Repeat("x", 5000),
			}
		}},
		{"began", "CoordinatorBegan", "The pool's coordinator began at 2030-01-02T12:00:00Z. What the one before it had not " +
			"told yet of who opened what is lost", edge.ActBegan,
			func(o *edge.Opening) { o.Attempt = edge.Attempt{Act: edge.ActBegan} }},
	} {
		o := exec(tc.act)
		tc.change(&o)
		e, err := of.event(o)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if e.Message != tc.want || e.Reason != tc.reason || int(e.Count) != o.Count {
			t.Errorf("%s: %s x%d\n%s, want %s\n%s", tc.name, e.Reason, e.Count, e.Message, tc.reason, tc.want)
		}
		if (e.Type == corev1.EventTypeWarning) != (o.Act == edge.ActRefused) || (e.Related == nil) != (o.Pod == "") {
			t.Errorf("%s: %+v", tc.name, e)
		}
	}
	if _, err := of.event(exec("invented")); err == nil {
		t.Error("an act that nobody knows becomes an Event")
	}
}

// TestTheSameEvent: two leaders tell the same, by the same name.
func TestTheSameEvent(t *testing.T) {
	mine, err := of.event(exec(edge.ActOpened))
	if err != nil {
		t.Fatal(err)
	}
	next := of
	next.node = "n2"
	theirs, err := next.event(exec(edge.ActOpened))
	if err != nil {
		t.Fatal(err)
	}
	if mine.Name != "yurt-coordinator-p1.abcdefghijklmnop.7" || theirs.Name != mine.Name || theirs.Message != mine.Message {
		t.Errorf("%s and %s", mine.Name, theirs.Name)
	}
	if mine.Namespace != "default" || mine.InvolvedObject != of.about || mine.ReportingInstance != "n1" ||
		mine.Labels[edge.LabelNodePool] != "p1" || !mine.FirstTimestamp.Time.Equal(noon) {
		t.Errorf("%+v", mine)
	}
}
