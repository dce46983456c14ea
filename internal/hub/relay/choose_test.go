package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

func names(all []neighbour) (names []edge.NodeName) {
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

func TestNeighbours(t *testing.T) {
	type beat = coordinationv1.Lease
	lease := func(name, at string, change func(*beat)) beat {
		l := coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{edge.AnnotationRelaysAt: at}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To[int32](40)},
		}
		if change != nil {
			change(&l)
		}
		return l
	}
	const at = "10.0.0.1:10269"
	for name, tc := range map[string]struct {
		lease coordinationv1.Lease
		want  bool
	}{
		"one that relays":         {lease("n2", at, nil), true},
		"over IPv6":               {lease("n2", "[fd00::1]:10269", nil), true},
		"itself":                  {lease("n1", at, nil), false},
		"one that does not":       {lease("n2", "", nil), false},
		"by a name":               {lease("n2", "n2:10269", nil), false},
		"without a port":          {lease("n2", "10.0.0.1:0", nil), false},
		"anywhere":                {lease("n2", "0.0.0.0:10269", nil), false},
		"a group":                 {lease("n2", "224.0.0.1:10269", nil), false},
		"another's word":          {lease("n2", at, func(l *beat) { l.Spec.HolderIdentity = ptr.To("n3") }), false},
		"nobody's word":           {lease("n2", at, func(l *beat) { l.Spec.HolderIdentity = nil }), false},
		"one that is delegated":   {lease("n2", at, func(l *beat) { l.Annotations[edge.DelegateHeartbeat] = "true" }), false},
		"one that is relayed too": {lease("n2", at, func(l *beat) { l.Annotations[edge.AnnotationRelayedBy] = "n3" }), false},
	} {
		all := neighbours("n1", []coordinationv1.Lease{tc.lease}, renewals{}, renewals{}, time.Now())
		if (len(all) == 1) != tc.want {
			t.Errorf("%s: %v", name, all)
		}
	}
}

// TestOnlyTheLivingRelay: a copy makes a neighbour for as long as it is renewed, whatever the clocks of the nodes say. One that
// is seen for the first time may be alive.
func TestOnlyTheLivingRelay(t *testing.T) {
	seen, began := renewals{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	stamp := map[string]time.Time{"dead": began.AddDate(50, 0, 0), "living": began.AddDate(-50, 0, 0)}
	look := func(after time.Duration) []edge.NodeName {
		var copies []coordinationv1.Lease
		for _, name := range []string{"dead", "living"} {
			copies = append(copies, coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Annotations: map[string]string{edge.AnnotationRelaysAt: "10.0.0.1:10269"},
				},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To[int32](40),
					RenewTime: ptr.To(metav1.NewMicroTime(stamp[name])),
				},
			})
		}
		next := renewals{}
		all := neighbours("n1", copies, seen, next, began.Add(after))
		seen = next
		return names(all)
	}
	for _, tc := range []struct {
		after time.Duration
		want  []edge.NodeName
	}{
		{0, []edge.NodeName{"dead", "living"}},
		{39 * time.Second, []edge.NodeName{"dead", "living"}},
		{40 * time.Second, []edge.NodeName{"living"}},
		{time.Hour, []edge.NodeName{"living"}},
	} {
		if got := look(tc.after); !slices.Equal(got, tc.want) {
			t.Errorf("after %v: %v, want %v", tc.after, got, tc.want)
		}
		stamp["living"] = stamp["living"].Add(time.Microsecond)
	}
	stamp["dead"] = began.AddDate(-50, 0, 0) // it is back, with another clock
	if got := look(time.Hour); len(got) != 2 {
		t.Errorf("who is back is not known: %v", got)
	}
}

// TestRank: the nodes of a pool spread over those that relay, and keep to their choice when another comes or goes.
func TestRank(t *testing.T) {
	var all []neighbour
	for i := range 10 {
		all = append(all, neighbour{edge.NodeName(fmt.Sprintf("p1-n%d", i)), netip.MustParseAddrPort("10.0.0.1:1")})
	}
	const nodes = 1000
	chosen := map[edge.NodeName]int{}
	moved := 0
	for i := range nodes {
		self := edge.NodeName(fmt.Sprintf("cut-%d", i))
		rank(self, all)
		first := all[0].Name
		chosen[first]++
		gone := slices.Clone(all[:9])
		slices.Reverse(gone)
		if rank(self, gone); gone[0].Name != first {
			moved++
		}
	}
	if len(chosen) != len(all) || moved != 0 {
		t.Errorf("%v were chosen; %d nodes chose another though theirs was there still", chosen, moved)
	}
	for name, n := range chosen {
		if n < nodes/20 || n > nodes/5 {
			t.Errorf("%s was chosen by %d of %d nodes", name, n, nodes)
		}
	}
}

func TestFailures(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	all := []neighbour{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	f := failures{}
	order := func(after time.Duration, want ...edge.NodeName) {
		t.Helper()
		got := slices.Clone(all)
		f.last(got, at.Add(after))
		if !slices.Equal(names(got), want) {
			t.Errorf("after %v: %v, want %v", after, names(got), want)
		}
	}
	order(0, "a", "b", "c")
	f.note("a", false, at)
	order(time.Second, "b", "c", "a")
	f.note("b", false, at.Add(time.Second))
	order(2*time.Second, "c", "a", "b")
	f.note("a", true, at.Add(3*time.Second))
	order(4*time.Second, "a", "c", "b")
	order(time.Second+forget, "a", "b", "c")
	if f.note("c", false, at.Add(time.Second+forget)); len(f) != 1 {
		t.Errorf("%v is remembered", f)
	}
}

func TestPlaces(t *testing.T) {
	var p places
	limits := Limits{PerPeer: 2, All: 3}
	take := func(peer edge.NodeName, want bool) {
		t.Helper()
		if got := p.take(peer, limits); got != want {
			t.Errorf("a place for %s: %t", peer, got)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("c", false)
	p.leave("a")
	take("c", true)
	for _, peer := range []edge.NodeName{"a", "b", "c"} {
		p.leave(peer)
	}
	if tunnels, peers := p.count(); tunnels != 0 || peers != 0 || len(p.each) != 0 {
		t.Errorf("%d tunnels of %d peers are left", tunnels, peers)
	}
}

func TestAllowance(t *testing.T) {
	var a allowance
	limits := Limits{BytesPerDay: 100}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if left := a.left(limits, at); left != 100 {
		t.Errorf("%d left at the start", left)
	}
	late := at.Add(23 * time.Hour)
	if !a.spend(99, limits, at.Add(time.Hour)) || a.spend(1, limits, late) || a.left(limits, late) != 0 {
		t.Error("a day's bytes are not what a day has")
	}
	if left := a.left(Limits{BytesPerDay: 150}, at.Add(23*time.Hour)); left != 50 {
		t.Errorf("%d left of a larger day", left)
	}
	if left := a.left(limits, at.Add(24*time.Hour)); left != 100 {
		t.Errorf("%d left on the next day", left)
	}
}
