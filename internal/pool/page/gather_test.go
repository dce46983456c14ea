package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// A table's columns are found by their names, wherever they are.
func TestPodsInATable(t *testing.T) {
	const raw = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"next"},
		"columnDefinitions":[{"name":"Name"},{"name":"Ready"},{"name":"Status"},{"name":"Restarts"},{"name":"Age"},{"name":"IP"},
			{"name":"Nominated Node"},{"name":"Node"}],
		"rows":[{"cells":["till","1/2","CrashLoopBackOff","3 (5s ago)","2m","<none>",null,"n2"],
			"object":{"metadata":{"namespace":"shop"}}},{"cells":["short"],"object":{"metadata":{"namespace":"x"}}}]}`
	pods, next, err := podsIn([]byte(raw))
	want := []Pod{
		{Namespace: "shop", Name: "till", Ready: "1/2", Status: "CrashLoopBackOff", Restarts: "3 (5s ago)", Age: "2m",
			Node: "n2"},
		{Namespace: "x", Name: "short"},
	}
	if err != nil || next != "next" || !slices.Equal(pods, want) {
		t.Errorf("%+v, %q, %v", pods, next, err)
	}
	if _, _, err := podsIn([]byte("<html>")); err == nil {
		t.Error("something else is taken for a table")
	}
}

func TestPages(t *testing.T) {
	var asked []string
	err := pages(func(from string) (string, error) {
		asked = append(asked, from)
		return map[string]string{"": "b", "b": "c"}[from], nil
	})
	if err != nil || !slices.Equal(asked, []string{"", "b", "c"}) {
		t.Errorf("%q, %v", asked, err)
	}
	n := 0
	err = pages(func(string) (string, error) {
		n++
		return "more", fmt.Errorf("no")
	})
	if err == nil || n != 1 {
		t.Errorf("%d pages, %v", n, err)
	}
}

func TestNodeFacts(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{edge.LabelNodePool: "p1"}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: "MemoryPressure", Status: "False"}, {Type: "Ready", Status: "Unknown"}},
			Addresses:  []corev1.NodeAddress{{Type: "Hostname", Address: "n1"}, {Type: "InternalIP", Address: "192.0.2.1"}},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"},
		},
	}
	want := NodeFact{Name: "n1", Pool: "p1", Ready: "Unknown", Unschedulable: true, Address: "192.0.2.1", Version: "v1.36.3"}
	if got := nodeFact(n); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	n.Annotations = map[string]string{edge.AnnotationLANAddress: "10.0.0.7"}
	if got := nodeFact(n); got.Address != "10.0.0.7" {
		t.Errorf("%+v: on its LAN it is at 10.0.0.7", got)
	}
}

// A hub's word that can't be read is as none.
func TestLeaseFacts(t *testing.T) {
	renewed := metav1.NewMicroTime(noon)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", Labels: map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn},
			Annotations: map[string]string{
				edge.AnnotationTraffic: "10/20/1767268800", edge.AnnotationLine: "42/3/1/metered", edge.AnnotationRelayedBy: "n2",
				edge.AnnotationKubelet: "missing", edge.AnnotationHubVersion: "v0.2.0-rc.1",
			},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
	got := leaseFact(l)
	if got.Name != "n1" || !got.Delegated || got.RelayedBy != "n2" || !got.Renewed.Equal(noon) || got.Traffic.Received != 20 ||
		*got.Line != (edge.Line{Answer: 42 * time.Millisecond, Spread: 3 * time.Millisecond, Lost: 1, Metered: true}) ||
		got.Kubelet != edge.KubeletMissing || got.Hub != "v0.2.0-rc.1" {
		t.Errorf("%+v", got)
	}
	l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
		edge.AnnotationTraffic: "<b>", edge.AnnotationLine: "1/2", edge.AnnotationKubelet: "fine", edge.DelegateHeartbeat: "yes",
		edge.AnnotationHubVersion: "v0.2.0<b>",
	}}}
	if got := leaseFact(l); got != (LeaseFact{Name: "n1"}) {
		t.Errorf("%+v, want no more than its name", got)
	}
}

func TestEvents(t *testing.T) {
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(d)) }
	for name, c := range map[string]struct {
		event corev1.Event
		want  Event
	}{
		"kubelet's": {
			corev1.Event{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, Type: "Warning", Reason: "BackOff", Message: "why",
				Count:          4,
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "till"},
				Source:         corev1.EventSource{Component: "kubelet", Host: "n2"}, FirstTimestamp: at(0),
				LastTimestamp: at(time.Minute),
			},
			Event{true, "BackOff", "why", "Pod shop/till", "kubelet on n2", 4, noon.Add(time.Minute)},
		},
		"one of a series": {
			corev1.Event{
				Type: "Normal", Reason: "Seen", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n2"},
				ReportingController: "agent", EventTime: metav1.NewMicroTime(noon),
				Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(noon.Add(time.Second))},
			},
			Event{false, "Seen", "", "Node n2", "agent", 7, noon.Add(time.Second)},
		},
	} {
		if got := event(&c.event); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	long := event(&corev1.Event{Message: strings.Repeat("é", maxText)})
	if len(long.Message) > maxText+len("…") || strings.ToValidUTF8(long.Message, "") != long.Message {
		t.Errorf("%d bytes: %q", len(long.Message), long.Message)
	}
	var many []Event
	for i := range 3 * maxEvents {
		many = append(many, Event{At: noon.Add(time.Duration(i*7919%1000) * time.Second)})
	}
	kept := newest(many)
	if len(kept) != maxEvents || !slices.IsSortedFunc(kept, func(a, b Event) int { return b.At.Compare(a.At) }) {
		t.Errorf("%d Events, or not the newest first", len(kept))
	}
}
