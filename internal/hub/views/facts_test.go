package views

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// pod is one of a node, ready at 10.0.0.1 as of revision 10, but for what change says.
func pod(name string, node edge.NodeName, change ...func(*edge.PodPresence)) edge.PodPresence {
	p := edge.PodPresence{
		PodName: edge.PodName{Namespace: "ns", Name: name}, UID: "uid-" + name, Node: node, Revision: 10, Ready: true,
		IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func unready(p *edge.PodPresence)    { p.Ready = false }
func said(p *edge.PodPresence)       { p.Said = true }
func overruled(p *edge.PodPresence)  { p.Ready, p.Overruled = false, true }
func deleted(p *edge.PodPresence)    { p.Terminating = true }
func another(p *edge.PodPresence)    { p.UID = "another" }
func oldHistory(p *edge.PodPresence) { p.History = 1 }

func madeAt(r edge.Revision) func(*edge.PodPresence) {
	return func(p *edge.PodPresence) { p.Revision = r }
}

// known is what is known, as text.
func known(f *facts, settling bool) string {
	k := f.known(0, settling, nil)
	var all []string
	for key, p := range k.Pods {
		text := fmt.Sprint(key.Name, "@", p.Revision)
		for _, flag := range []struct {
			is   bool
			text string
		}{{p.Firm, " firm"}, {p.Ready, " ready"}, {p.Terminating, " deleted"}, {p.Finished, " finished"}} {
			if flag.is {
				text += flag.text
			}
		}
		all = append(all, text)
	}
	for name := range k.Silent {
		all = append(all, string(name)+" silent")
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func line(instance string, pods ...edge.PodPresence) edge.State {
	return edge.State{Instance: instance, Pods: pods}
}

func whole(l edge.State) edge.State {
	l.Whole = true
	return l
}

func gone(instance, name string) edge.State {
	return edge.State{Instance: instance, Gone: []edge.PodName{{Namespace: "ns", Name: name}}}
}

func TestOthersPods(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []edge.State
		want  string
	}{
		{"nothing", nil, ""},
		{"as the cloud has it", []edge.State{whole(line("i", pod("a", "n2")))}, "a@10 ready"},
		{"as kubelet says alone", []edge.State{whole(line("i", pod("a", "n2", unready, said)))}, "a@10 firm"},
		{"a change", []edge.State{whole(line("i", pod("a", "n2"))), line("i", pod("a", "n2", unready, madeAt(12)))}, "a@12"},
		{"the cloud takes readiness back", []edge.State{
			whole(line("i", pod("a", "n2"))), line("i", pod("a", "n2", overruled, madeAt(12))),
		}, "a@10 firm ready"},
		{"and kubelet speaks again", []edge.State{
			whole(line("i", pod("a", "n2"))), line("i", pod("a", "n2", overruled, madeAt(12))),
			line("i", pod("a", "n2", unready, madeAt(14))),
		}, "a@14"},
		{"the cloud takes back what it has not heard", []edge.State{
			whole(line("i", pod("a", "n2", said, unready))), line("i", pod("a", "n2", overruled, madeAt(12))),
		}, "a@10 firm"},
		{"and deletes the Pod", []edge.State{
			whole(line("i", pod("a", "n2"))), line("i", pod("a", "n2", overruled, deleted, madeAt(12))),
		}, "a@10 firm ready deleted"},
		{"taken back before it was known", []edge.State{whole(line("i", pod("a", "n2", overruled)))}, ""},
		{"of another Pod", []edge.State{whole(line("i", pod("a", "n2"))), line("i", pod("a", "n2", overruled, another))}, ""},
		{"gone", []edge.State{whole(line("i", pod("a", "n2"), pod("b", "n2"))), gone("i", "a")}, "b@10 ready"},
		{"gone while nobody listened", []edge.State{
			whole(line("i", pod("a", "n2"), pod("b", "n2"))), whole(line("i", pod("b", "n2"))),
		}, "b@10 ready"},
		{"of another history", []edge.State{whole(line("i", pod("a", "n2", oldHistory), pod("b", "n2", oldHistory, said)))},
			"b@10 firm ready"},

		{"a coordinator that comes back empty", []edge.State{
			whole(line("i", pod("a", "n2", unready, said))), whole(line("k")),
		}, "a@10 firm"},
		{"and is filled", []edge.State{
			whole(line("i", pod("a", "n2", unready, said), pod("b", "n2"))), whole(line("k")), line("k", pod("a", "n2", said)),
		}, "a@10 firm ready, b@10 ready"},
		{"and is asked again", []edge.State{
			whole(line("i", pod("a", "n2", unready, said), pod("b", "n2"))), whole(line("k", pod("a", "n2", said))),
			whole(line("k")),
		}, "b@10 ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFacts("n1")
			for _, l := range c.lines {
				f.heard(0, true, l)
			}
			if got := known(f, false); got != c.want {
				t.Errorf("known is %q, want %q", got, c.want)
			}
		})
	}
}

func TestSettling(t *testing.T) {
	f := newFacts("n1")
	f.heard(0, true, whole(line("i", pod("a", "n2"), pod("b", "n3", oldHistory))))
	if got := known(f, true); got != "a@10 firm ready, b@10 firm ready" {
		t.Errorf("known is %q", got)
	}
	if got := known(f, false); got != "a@10 ready" {
		t.Errorf("then %q", got)
	}
}

func TestOwnPods(t *testing.T) {
	type step struct {
		told        []edge.PodPresence // by the coordinator
		cloud, said []edge.PodPresence
		want        string
	}
	of := func(all ...edge.PodPresence) []edge.PodPresence { return all }
	for name, steps := range map[string][]step{
		"as the cloud has it": {{cloud: of(pod("a", "n1")), want: "a@10 firm ready"}},
		"as kubelet says": {
			{cloud: of(pod("a", "n1")), said: of(pod("a", "n1", said, unready)), want: "a@10 firm"},
			{cloud: of(pod("a", "n1")), said: of(pod("a", "n1", said)), want: "a@10 firm ready"},
		},
		"the cloud has something newer of kubelet's": {
			{cloud: of(pod("a", "n1")), said: of(pod("a", "n1", said, unready)), want: "a@10 firm"},
			{cloud: of(pod("a", "n1", madeAt(12))), said: of(pod("a", "n1", said, unready)), want: "a@12 firm ready"},
		},
		"the cloud has taken readiness back": {
			{cloud: of(pod("a", "n1")), want: "a@10 firm ready"},
			{cloud: of(pod("a", "n1", overruled, madeAt(12))), want: "a@10 firm ready"},
			{cloud: of(pod("a", "n1", madeAt(14))), want: "a@14 firm ready"},
		},
		"after kubelet spoke": {
			{cloud: of(pod("a", "n1")), said: of(pod("a", "n1", said, unready)), want: "a@10 firm"},
			{cloud: of(pod("a", "n1", overruled, madeAt(12))), said: of(pod("a", "n1", said, unready)), want: "a@10 firm"},
			{cloud: of(pod("a", "n1", overruled, madeAt(12))), want: "a@10 firm"},
		},
		"a hub that starts in a cut: what kubelet told the one before": {
			{told: of(pod("a", "n1", said, unready)), cloud: of(pod("a", "n1")), want: "a@10 firm"},
			{cloud: of(pod("a", "n1")), said: of(pod("a", "n1", said)), want: "a@10 firm ready"},
		},
		"and the cloud has something newer": {
			{told: of(pod("a", "n1", said, unready)), cloud: of(pod("a", "n1", madeAt(12))), want: "a@12 firm ready"},
		},
		"gone": {{cloud: of(pod("a", "n1")), want: "a@10 firm ready"}, {}},
		"deleted in the cloud": {
			{cloud: of(pod("a", "n1", deleted)), said: of(pod("a", "n1", said)), want: "a@10 firm ready deleted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts("n1")
			for i, s := range steps {
				if s.told != nil {
					f.heard(0, true, whole(line("i", s.told...)))
				}
				f.ownPods(s.cloud, s.said, edge.Revision(100+i))
				if got := known(f, false); got != s.want {
					t.Errorf("after step %d known is %q, want %q", i, got, s.want)
				}
			}
			if k := f.known(0, false, nil); k.OwnAsOf != 100 || k.Node != "n1" {
				t.Errorf("known as of %d", k.OwnAsOf)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	nodes := func(instance string, silent ...bool) edge.State {
		l := edge.State{Instance: instance}
		for i, s := range silent {
			l.Nodes = append(l.Nodes, edge.NodePresence{Name: edge.NodeName(fmt.Sprint("n", i+2)), Silent: s, GraceSeconds: 50})
		}
		return l
	}
	f := newFacts("n1")
	const not = -time.Second
	expect := func(why string, since, again time.Duration, want string) {
		t.Helper()
		reached := map[int]time.Duration{}
		if since != not {
			reached[0] = since
		}
		if got := f.decideSilent(reached); got != again || known(f, false) != want {
			t.Errorf("%s: known is %q, to be judged again after %s; want %q, %s", why, known(f, false), got, want, again)
		}
	}
	expect("nobody is known", time.Hour, 0, "")
	f.heard(0, true, whole(nodes("i", false, true)))
	expect("one is silent, says the coordinator, which was reached a moment ago", 20*time.Second, 30*time.Second, "")
	expect("and is not reached", not, 0, "")
	expect("and was reached for as long", 50*time.Second, 0, "n3 silent")
	expect("and the coordinator is gone", not, 0, "n3 silent")
	f.heard(0, true, whole(nodes("k")))
	expect("another has not seen it", time.Second, 0, "n3 silent")
	f.heard(0, true, nodes("k", false))
	expect("and sees others", time.Second, 0, "n3 silent")
	f.heard(0, true, nodes("k", false, false))
	expect("and sees it", time.Second, 0, "")
	f.heard(0, true, nodes("k", true, false))
	expect("and then is silent about another", 10*time.Second, 40*time.Second, "")
	f.heard(0, true, whole(nodes("k")))
	expect("and forgets it", time.Hour, 0, "")
	f.heard(0, true, edge.State{Instance: "k", Nodes: []edge.NodePresence{{Name: "n1", Silent: true, GraceSeconds: 1}}})
	expect("this node is never silent", time.Hour, 0, "")
}

// TestTheSameIsTheSame: what has not changed is the same to the view, which then has nothing to do.
func TestTheSameIsTheSame(t *testing.T) {
	f := newFacts("n1")
	f.heard(0, true, whole(line("i", pod("a", "n2"), pod("b", "n2", overruled))))
	f.ownPods([]edge.PodPresence{pod("c", "n1")}, nil, 100)
	before := f.known(0, false, nil)
	f.heard(0, true, line("i", pod("a", "n2")))
	f.heard(0, true, whole(line("i", pod("a", "n2"))))
	f.heard(0, true, whole(line("k", pod("a", "n2"))))
	f.ownPods([]edge.PodPresence{pod("c", "n1")}, nil, 120)
	after := f.known(0, false, nil)
	for key, p := range after.Pods {
		if before.Pods[key] != p {
			t.Errorf("%v is another", key)
		}
	}
	if len(after.Pods) != 2 || after.OwnAsOf != before.OwnAsOf {
		t.Errorf("known are %v, as of %d", after.Pods, after.OwnAsOf)
	}
}

// TestBounded: a coordinator cannot fill this hub's memory.
func TestBounded(t *testing.T) {
	f := newFacts("n1")
	long := strings.Repeat("x", maxPodBytes+1)
	named, at := pod("p", "n2"), pod("q", "n2")
	named.UID, at.IPs = long, []netip.Addr{netip.MustParseAddr("fe80::1%" + long)}
	f.heard(0, true, edge.State{
		Pods: []edge.PodPresence{pod(long, "n2"), named, at}, Nodes: []edge.NodePresence{{Name: edge.NodeName(long)}},
	})
	if len(f.others) != 0 || len(f.nodes) != 0 {
		t.Errorf("%d Pods and %d nodes with long names are known", len(f.others), len(f.nodes))
	}
	var l edge.State
	for i := range maxPods + 10 {
		l.Pods = append(l.Pods, pod(fmt.Sprint("p", i), "n2"))
		l.Nodes = append(l.Nodes, edge.NodePresence{Name: edge.NodeName(fmt.Sprint("m", i)), GraceSeconds: 1})
	}
	f.heard(0, true, l)
	if len(f.others) != maxPods || len(f.nodes) != maxPods {
		t.Errorf("%d Pods and %d nodes are known", len(f.others), len(f.nodes))
	}
}
