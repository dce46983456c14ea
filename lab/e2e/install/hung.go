package install

import (
	"fmt"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var hungScenarios = []kit.Scenario{{
	Name: "hung-hub", Lab: hanging(kit.Joining(kit.OnePool, 0)), Run: hungHub,
	Doc: "A hub that hangs is started again by systemd's watchdog, and the node stays Ready.",
}}

// hanging has Kubernetes' own times: how long a hub may hang follows from its grace period.
func hanging(c lab.Config) lab.Config {
	c.Timing = lab.Stock
	return c
}

func hungHub(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	t.Node(name).DeployNeedy()
	n := straightNode(t, name)
	coordinator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	t.Say("%s", strings.TrimSpace(n.mustSh(n.joinCommand("--coordinator-server-addr="+coordinator.Host))))
	n.beats("kubelet goes through the hub")
	n.adopt()
	before := n.still()

	// NRestarts counts what systemd has started again by itself.
	const restarts = "systemctl show --property=NRestarts --value yurthub.service"
	if had := strings.TrimSpace(n.mustSh(restarts)); had != "0" {
		t.Fail("a hub that is well was started again %s times", had)
	}
	start := time.Now()
	n.mustSh("systemctl kill --signal=SIGSTOP yurthub.service")
	t.Eventually(40*time.Second, "systemd starts the hub again", func() error {
		if had := strings.TrimSpace(n.mustSh(restarts)); had != "1" {
			return fmt.Errorf("it has done so %s times", had)
		}
		return nil
	})
	t.Figure("hung_hub_restarted_s", time.Since(start).Seconds())
	n.beats("with the hub that was started again")
	t.Hold(t.Config.Timing.Grace, "a grace period later")
	n.undisturbed("hung", before)
}
