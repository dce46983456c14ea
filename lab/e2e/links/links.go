package links

import (
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

func stock(c lab.Config) lab.Config {
	c.Timing = lab.Stock
	return c
}

var linkScenarios = []kit.Scenario{
	{
		Name: "cut-one", Tier: kit.Core, Lab: kit.OnePool, Run: cutOne,
		Doc: "A node's link goes silent for three times as long as Kubernetes waits before it evicts. The node is never " +
			"NotReady, keeps its Pods and endpoints, and gets no new Pods until the link heals.",
	},
	{
		Name: "cut-one-stock", Lab: stock(kit.OnePool), Run: cutOne,
		Doc: "`cut-one` with Kubernetes' own timing: a 50 s grace period and a heartbeat every 10 s.",
	},
}

func cutOne(t *kit.T) {
	pods := t.DeployWeb()
	node := t.Pool.Follower(t.Pool.SettledAway())
	longest := askThrough(t, node)
	t.Node(node).CutOff(pods, nil)
	waited := longest()
	t.Figure("longest_request_s", waited.Seconds())
	if waited > 3*mostInFlight {
		t.Fail("a request waited %v when the link of %s went silent, want at most %v", waited, node, mostInFlight)
	}
}
