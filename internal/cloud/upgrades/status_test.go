package upgrades

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

func TestJudge(t *testing.T) {
	s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 4}}
	s.Spec.Upgrade.Version = newer
	s.Status.Nodes, s.Status.Conditions = 9, []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	at := func(pool string, is state, message string) decision {
		return decision{pool: edge.PoolName(pool), version: newer, state: is, message: message, upgraded: 1, nodes: 3}
	}
	there := decision{pool: "done", version: newer, state: UpToDate, upgraded: 2, nodes: 2}
	for _, tt := range []struct {
		chosen []decision
		reason string
		is     metav1.ConditionStatus
		says   string
		first  string
	}{
		{nil, ReasonNoPools, metav1.ConditionTrue, "selects no pool", ""},
		{[]decision{there}, "UpToDate", metav1.ConditionTrue, "All hubs run the version that is set for them: 2.", ""},
		{[]decision{there, at("p", Waiting, "n is cut off")}, "Waiting", metav1.ConditionFalse,
			"3 of 5 hubs run it. p: n is cut off", "p"},
		{[]decision{at("p", Waiting, "w"), at("q", NotUpgradable, "no key")}, "NotUpgradable", metav1.ConditionFalse,
			"q: no key", "q"},
		{[]decision{at("p", Waiting, "w"), at("q", Upgrading, "u")}, "Upgrading", metav1.ConditionFalse, "q: u", "q"},
		{[]decision{at("p", Upgrading, "u"), at("q", Stopped, "a went back"), at("r", Stopped, "x")}, "Stopped",
			metav1.ConditionFalse, "q, r: a went back", "q"},
		{[]decision{at("p", Stopped, "s"), at("q", BadSettings, "b")}, "BadSettings", metav1.ConditionFalse, "q: b", "q"},
	} {
		status := statusOf(s, tt.chosen, metav1.NewTime(noon))
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
		if c == nil || c.Reason != tt.reason || c.Status != tt.is || !strings.Contains(c.Message, tt.says) ||
			c.ObservedGeneration != 4 {
			t.Errorf("%v: %+v", tt.chosen, c)
		}
		if status.Nodes != 9 || len(status.Conditions) != 2 || status.Upgrade == nil {
			t.Errorf("%v: what others say has changed: %+v", tt.chosen, status)
		}
		if pools := status.Upgrade.Pools; tt.first != "" && (len(pools) == 0 || pools[0].Name != tt.first) {
			t.Errorf("%v: the pools are %+v", tt.chosen, pools)
		}
	}
	var many []decision
	for i := range 80 {
		many = append(many, at(fmt.Sprintf("p%d", i), WaitsItsTurn, "w"))
	}
	status := statusOf(s, many, metav1.NewTime(noon))
	if len(status.Upgrade.Pools) != maxPools || status.Upgrade.Nodes != 240 || status.Upgrade.UpgradedNodes != 80 {
		t.Errorf("%d pools, %+v", len(status.Upgrade.Pools), status.Upgrade)
	}
	s.Status = status
	s.Spec.Upgrade = v1alpha1.UpgradeSettings{}
	if status = statusOf(s, many, metav1.NewTime(noon)); status.Upgrade != nil || len(status.Conditions) != 1 {
		t.Errorf("nothing is wanted any more, and it says %+v", status)
	}
}
