package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// poolOf are the facts of a pool whose nodes are all fine; n1 leads, and has the coordinator.
func poolOf(names ...edge.NodeName) Facts {
	f := Facts{AsRead: AsRead{At: noon, Began: noon.Add(-2 * time.Hour), Host: "n1", Leader: "n1"}}
	for _, n := range names {
		f.Nodes = append(f.Nodes, NodeFact{Name: n, Pool: "p1", Ready: "True", Address: "10.78.1.1", Version: "v1.36.3"})
		f.Leases = append(f.Leases, LeaseFact{
			Name: n, Renewed: noon.Add(-3 * time.Second), Line: &edge.Line{Answer: 42 * time.Millisecond,
				Spread: 3 * time.Millisecond},
			Traffic: &edge.Traffic{Sent: 1 << 20, Received: 3 << 20, Since: noon.Add(-time.Hour)}, Kubelet: edge.KubeletPinned,
		})
		f.Heard = append(f.Heard, edge.Heard{Name: n, Quiet: 3 * time.Second, Grace: 50 * time.Second})
	}
	return f
}

func TestSee(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		links  string
		want   []Headline
	}{
		"all is well": {func(*Facts) {}, "n1=up n2=up n3=up",
			[]Headline{{Good, "All is well: 3 nodes are here, and each reaches the cloud."}}},
		"one has lost its link": {func(f *Facts) { f.Leases[1].Delegated = true }, "n1=up n2=down n3=up",
			[]Headline{{Warn, "n2 has no link to the cloud; n1 reports for it."}}},
		"two have": {func(f *Facts) { f.Leases[1].Delegated, f.Leases[2].Delegated = true, true }, "n1=up n2=down n3=down",
			[]Headline{{Warn, "n2 and n3 have no link to the cloud; n1 reports for them."}}},
		"a neighbour helps": {func(f *Facts) { f.Leases[1].RelayedBy = "n3" }, "n1=up n2=relayed n3=up",
			[]Headline{{Warn, "n2 has no link to the cloud of its own; a neighbour's serves it."}}},
		"the site is cut off": {
			func(f *Facts) {
				f.Leader = ""
				for i := range f.Leases {
					f.Leases[i].Delegated = true
				}
			}, "n1=down n2=down n3=down",
			[]Headline{{Warn,
				"This site is cut off from the cloud: no node reaches it. Pods run on; what comes from the cloud is as it was."}},
		},
		"nobody leads": {func(f *Facts) { f.Leader = "" }, "n1=up n2=up n3=up",
			[]Headline{{Warn, "No hub leads this pool at the moment."}}},
		"one is silent": {func(f *Facts) { f.Heard[2].Silent = true }, "n1=up n2=up n3=silent",
			[]Headline{{Bad, "n3 is silent: dead, or cut off from this coordinator."}}},
		"one was never heard": {func(f *Facts) { f.Heard = f.Heard[:2] }, "n1=up n2=up n3=unheard",
			[]Headline{{Bad, "n3 has not been heard here since this coordinator started."}}},
		"nobody is heard": {func(f *Facts) { f.Heard = nil }, "n1=unheard n2=unheard n3=unheard",
			[]Headline{{Bad, "No node has been heard here for a while."}}},
		"a node is not ready": {func(f *Facts) { f.Nodes[0].Ready = "False" }, "n1=up n2=up n3=up",
			[]Headline{{Warn, "n1 is not ready, as far as is known here."}}},
		"a Pod crashes, and one node is without a link": {
			func(f *Facts) {
				f.Leases[1].Delegated = true
				f.Pods = []Pod{{Namespace: "shop", Name: "till", Status: "CrashLoopBackOff", Ready: "0/1", Node: "n2"}}
			}, "n1=up n2=down n3=up",
			[]Headline{{Bad, "1 Pod does not run as it should."}, {Warn, "n2 has no link to the cloud; n1 reports for it."}},
		},
		"something can't be read": {func(f *Facts) { f.Missing = []string{"Pods can't be read"} }, "n1=up n2=up n3=up",
			[]Headline{{Bad, "Pods can't be read"}}},
		"a node that has no Node here": {func(f *Facts) { f.Nodes = f.Nodes[:2] }, "n1=up n2=up n3=up",
			[]Headline{{Good, "All is well: 3 nodes are here, and each reaches the cloud."}}},
	} {
		f := poolOf("n1", "n2", "n3")
		c.change(&f)
		s := See(f)
		var links []string
		for i := range s.Nodes {
			links = append(links, fmt.Sprintf("%s=%s", s.Nodes[i].Name, s.Nodes[i].Link))
		}
		if got := strings.Join(links, " "); got != c.links {
			t.Errorf("%s: %s, want %s", name, got, c.links)
		}
		if !slices.Equal(s.Headlines, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, s.Headlines, c.want)
		}
	}
}

func TestSeeCounts(t *testing.T) {
	f := poolOf("n1", "n2", "n3", "n4", "n5")
	f.Leases[1].Delegated, f.Leases[2].RelayedBy, f.Heard[3].Silent = true, "n1", true
	f.Pods = []Pod{
		{Namespace: "b", Name: "b", Status: "Running", Ready: "1/1", Node: "n1"},
		{Namespace: "a", Name: "z", Status: "Running", Ready: "1/2", Node: "n1"},
		{Namespace: "a", Name: "y", Status: "Pending", Ready: "0/1", Node: ""},
	}
	s := See(f)
	if s.Pool != "p1" || s.Heard != 4 || s.Links != 3 || s.Troubled != 1 || s.Sent != 5<<20 || s.Received != 15<<20 {
		t.Errorf("%+v", s)
	}
	if n := s.Nodes[0]; !n.Leads || !n.Hosts || n.Pods != 2 || n.Troubled != 1 || n.Tone() != Good {
		t.Errorf("n1: %+v", n)
	}
	if s.Pods[0].Name != "z" || s.Pods[1].Name != "y" || s.Pods[2].Name != "b" || f.Pods[0].Name != "b" {
		t.Errorf("not those with trouble first, or the facts have changed: %+v, %+v", s.Pods, f.Pods)
	}
	for name, want := range map[int]string{1: "own link down; n1 reports for it",
		2: "own link down; reaches the cloud over that of n1"} {
		if got := s.Nodes[name].Says; got != want {
			t.Errorf("%s: %q, want %q", s.Nodes[name].Name, got, want)
		}
	}
}

func TestTonesOfPods(t *testing.T) {
	for status, want := range map[string]Tone{
		"Running 1/1": Good, "Running 0/1": Bad, "Running 1/2": Bad, "Completed 0/1": Good, "Succeeded 0/1": Good,
		"Pending 0/1":           Warn,
		"ContainerCreating 0/1": Warn, "Terminating 1/1": Warn, "Init:0/1 0/1": Warn, "Init:Error 0/1": Bad,
		"Init:CrashLoopBackOff 0/1": Bad, "CrashLoopBackOff 0/1": Bad, "Error 0/1": Bad, "ImagePullBackOff 0/1": Bad,
		"Evicted 0/1": Bad,
		"Unknown 1/1": Bad, " ": Bad,
	} {
		word, ready, _ := strings.Cut(status, " ")
		if got := (&Pod{Status: word, Ready: ready}).Tone(); got != want {
			t.Errorf("%s is %s, want %s", status, got, want)
		}
	}
}

func TestManyNamesAreShortened(t *testing.T) {
	for n, want := range map[int]string{
		1: "n1", 2: "n1 and n2", 3: "n1, n2 and n3", 4: "n1, n2 and 2 more nodes", 9: "n1, n2 and 7 more nodes",
	} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("n%d", i+1))
		}
		if got := list(all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
