package plugin

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
)

func TestTrafficOf(t *testing.T) {
	report := aLease("a1", 30*time.Second, false)
	report.Annotations = map[string]string{edge.AnnotationTraffic: "a2=30/4/60,a1=1/2/0,junk"}
	copied := aLease("a1", 0, true)
	copied.Annotations[edge.AnnotationTraffic] = "5/6/0"
	lies := aLease("a2", 0, false)
	lies.Annotations = map[string]string{edge.AnnotationTraffic: "9/9/0 and more"}
	leases := map[string]coordinationv1.Lease{"yurt-coordinator-a": report, "a1": copied, "a2": lies}
	of := func(node string, sent, received uint64, since int64) NodeTraffic {
		return NodeTraffic{node, edge.Traffic{Sent: sent, Received: received, Since: time.Unix(since, 0)}}
	}
	said := noon.Add(-30 * time.Second)
	for name, c := range map[string]struct {
		o              Objects
		want           []NodeTraffic
		sent, received uint64
		said           *time.Time
	}{
		"from the cloud":         {Objects{Leases: leases}, []NodeTraffic{of("a1", 1, 2, 0), of("a2", 30, 4, 60)}, 31, 6, &said},
		"from the coordinator":   {Objects{Within: "a", Leases: leases}, []NodeTraffic{of("a1", 5, 6, 0)}, 5, 6, nil},
		"nobody has told anyone": {Objects{}, []NodeTraffic{}, 0, 0, nil},
	} {
		got := TrafficOf(c.o, "a", noon)
		if !reflect.DeepEqual(got.Nodes, c.want) || got.Total.Sent != c.sent || got.Total.Received != c.received ||
			!reflect.DeepEqual(got.Said, c.said) {
			t.Errorf("%s: %+v, want %+v, %d sent, %d received, said %v", name, got, c.want, c.sent, c.received, c.said)
		}
	}
}

func TestPrintTraffic(t *testing.T) {
	traffic := TrafficOf(Objects{Within: "a", Leases: map[string]coordinationv1.Lease{
		"a1": {}, "a2": {},
	}}, "a", noon)
	since := noon.Add(-time.Hour)
	traffic.Nodes = []NodeTraffic{
		{"a1", edge.Traffic{Sent: 1023, Received: 1024, Since: since}},
		{"a2", edge.Traffic{Sent: 25 << 20, Received: 123456789, Since: since}},
	}
	traffic.Total.Sent, traffic.Total.Received = 1<<60, 0
	for _, c := range []struct {
		p    printer
		want string
	}{
		{printer{}, `NODE TO CLOUD FROM CLOUD COUNTED SINCE
a1 1023 B 1.00 KiB 60m ago
a2 25.0 MiB 118 MiB 60m ago
all 1048576 TiB 0 B
`},
		{printer{wide: true}, `NODE TO CLOUD FROM CLOUD COUNTED SINCE
a1 1023 1024 60m ago
a2 26214400 123456789 60m ago
all 1152921504606846976 0
`},
	} {
		var b bytes.Buffer
		c.p.out, c.p.now = &b, noon
		if err := c.p.traffic(traffic); err != nil || squeeze(b.String()) != c.want {
			t.Errorf("wide %t:\n%s, %v", c.p.wide, squeeze(b.String()), err)
		}
	}
	show := func(p *printer) error { return p.traffic(traffic) }
	if got := printed(t, "jsonpath={.metadata.name} {.nodes[1].sentBytes}", show); got != "a 26214400" {
		t.Errorf("JSONPath: %q", got)
	}
}
