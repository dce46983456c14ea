package coordinator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
)

func made(name string, after time.Duration, deleting bool) *v1alpha1.YurtCoordinator {
	c := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(after))}}
	c.Spec.NodePool = "p1"
	if deleting {
		now := metav1.NewTime(start.Add(time.Hour))
		c.DeletionTimestamp = &now
	}
	return c
}

func TestJudge(t *testing.T) {
	three := []NodeFact{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}
	marked := []NodeFact{{Name: "n1"}, {Name: "n2", Autonomous: true}, {Name: "n3"}}
	one := []*v1alpha1.YurtCoordinator{made("a", 0, false)}
	leaving := []*v1alpha1.YurtCoordinator{made("a", 0, true)}
	both := []*v1alpha1.YurtCoordinator{made("b", time.Second, false), made("a", 0, true)}
	for what, c := range map[string]struct {
		exists   bool
		asked    []*v1alpha1.YurtCoordinator
		nodes    []NodeFact
		deployed bool
		run      bool
		reason   string
		says     string
	}{
		"good":                 {true, one, three, false, true, ReasonDeployed, ""},
		"no pool":              {false, one, three, false, false, ReasonPoolNotFound, "NodePool p1"},
		"no pool any more":     {false, one, three, true, false, ReasonPoolNotFound, ""},
		"two nodes":            {true, one, three[:2], false, false, ReasonTooFewNodes, "2 nodes and needs 3"},
		"two nodes are left":   {true, one, three[:2], true, true, ReasonTooFewNodes, "stays"},
		"no node is left":      {true, one, nil, true, true, ReasonTooFewNodes, "0 nodes"},
		"autonomy":             {true, one, marked, false, false, ReasonNodeAutonomy, "from n2."},
		"autonomy of late":     {true, one, marked, true, true, ReasonNodeAutonomy, "stays"},
		"autonomy, few nodes":  {true, one, marked[:2], false, false, ReasonNodeAutonomy, ""},
		"many autonomous ones": {true, one, slices.Repeat(marked, 9), false, false, ReasonNodeAutonomy, "and 4 more"},
		"nobody asks for it":   {true, nil, three, true, false, "", ""},
		"on its way out":       {true, leaving, three, true, false, ReasonDeployed, ""},
		"out, and a new one":   {true, both, three, false, false, ReasonDeployed, ""},
	} {
		for _, bad := range []bool{false, true} {
			census := Census{
				Pool: "p1", PoolExists: c.exists, Coordinators: c.asked, Nodes: c.nodes[:min(1, len(c.nodes))],
				Deployed: c.deployed, MinNodes: 1,
			}
			run, reason := c.run, ReasonDeployed
			if bad {
				census.BadSettings, run, reason = errors.New("no good"), c.run && c.deployed, ReasonBadSettings
			}
			if what != "good" && what != "on its way out" {
				break
			}
			if v := Judge(census); v.Run != run || v.Reason != reason || bad && !strings.Contains(v.Message, "no good") {
				t.Errorf("%s, with one node, which is enough, bad settings %t: %+v", what, bad, v)
			}
		}
		v := Judge(Census{Pool: "p1", PoolExists: c.exists, Coordinators: c.asked, Nodes: c.nodes, Deployed: c.deployed})
		if v.Run != c.run || v.Reason != c.reason || !strings.Contains(v.Message, c.says) {
			t.Errorf("%s: %+v", what, v)
		}
	}
}

// TestAPoolsNameHasNoDot: the hubs of pool x would have the authority of the coordinator of pool x.hubs.
func TestAPoolsNameHasNoDot(t *testing.T) {
	census := Census{
		Pool: "x.hubs", PoolExists: true, Nodes: make([]NodeFact, 3),
		Coordinators: []*v1alpha1.YurtCoordinator{made("a", 0, false)},
	}
	if v := Judge(census); v.Run || v.Reason != ReasonBadPoolName || !strings.Contains(v.Message, `"x.hubs"`) ||
		!strings.Contains(v.Message, "apps.openyurt.io/nodepool=x.hubs apps.openyurt.io/nodepool=") {
		t.Errorf("%+v", v)
	}
	census.Deployed = true
	if v := Judge(census); !v.Run || v.Reason != ReasonBadPoolName || !strings.Contains(v.Message, "stays") {
		t.Errorf("with a coordinator from before: %+v", v)
	}
}

func TestTheOldestHasThePool(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		all  []*v1alpha1.YurtCoordinator
		want string
	}{
		{[]*v1alpha1.YurtCoordinator{made("a", second, false), made("b", 0, false)}, "b"},
		{[]*v1alpha1.YurtCoordinator{made("b", 0, false), made("a", 0, false)}, "a"},
		{[]*v1alpha1.YurtCoordinator{made("a", second, false), made("b", 0, true)}, "b"},
	} {
		v := Judge(Census{Pool: "p1", PoolExists: true, Coordinators: c.all, Nodes: make([]NodeFact, 3)})
		if v.Holder.Name != c.want {
			t.Errorf("%s has it, want %s", v.Holder.Name, c.want)
		}
		for _, each := range c.all {
			mine := v.For(each)
			if (each.Name == c.want) == (mine.Reason == ReasonSecondCoordinator) || each.Name != c.want && (mine.Run ||
				!strings.Contains(mine.Message, c.want)) {
				t.Errorf("for %s: %+v", each.Name, mine)
			}
		}
	}
}
