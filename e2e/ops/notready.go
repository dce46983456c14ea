package ops

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/balancer"
)

var notReadyScenarios = []kit.Scenario{{
	Name: "not-ready-cloud", Run: notReadyCloud,
	Lab: kit.Beside(lab.Config{Nodes: 3, Kubelet: lab.Hollow, NoProxy: true}, 1),
	Doc: "The cloud answers `/readyz` with 500 for 60 s and serves everything else. No link is called down, no connection " +
		"is reset, and nobody is delegated.",
}}

const notReadyFor = time.Minute

func notReadyCloud(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	cloud := cloudURL(t)
	say, report := startBalancer(t, "cloud", balancer.Order{
		Listen: fmt.Sprintf("%s:%d", cloud.Hostname(), balancerPort), To: cloud.String(), Authority: t.Lab.CloudAuthority(),
		Token: lab.AdminToken,
	})
	t.Say("a balancer comes in the way of all nodes")
	for _, network := range []string{"10.77.1.0/24", "10.77.2.0/24"} { // the nodes' WAN addresses: see docs/lab.md
		divert(t, "cloud", []string{"PREROUTING", "-p", "tcp", "-s", network, "--dport", cloud.Port()})
	}
	t.Hold(t.Config.Timing.Grace, "everything goes through the balancer")
	t.Pool.Settled(60 * time.Second)
	t.Eventually(20*time.Second, "/readyz is 200 for a node", func() error { return readyzIs(t, http.StatusOK) })

	on, failures := t.WatchLines(), trafficFailures(t)
	t.Say("/readyz is 500")
	say(balancer.Unready)
	t.Eventually(5*time.Second, "/readyz is 500 for a node", func() error { return readyzIs(t, http.StatusInternalServerError) })
	t.Hold(notReadyFor/2, "quiet")
	stop := t.Steadily(t.Pool.Nodes())
	t.Hold(notReadyFor/2, "a request through each hub five times a second")
	failed := stop()
	t.Figure("requests_failed", float64(len(failed)))
	say(balancer.Ready)
	t.Eventually(5*time.Second, "/readyz is 200 for a node", func() error { return readyzIs(t, http.StatusOK) })
	t.Hold(t.Config.Timing.Grace, "a grace period")
	broken, r := trafficFailures(t)-failures, report()
	t.Figure("connections_or_requests_broken", broken)
	t.Figure("readyz_answered_500", float64(r.Unready))
	t.Figure("connections_opened_meanwhile", float64(r.Opened))
	on.NothingHappened("")
	switch {
	case len(failed) > 0:
		t.Fail("%d requests failed, the first: %w", len(failed), failed[0])
	case broken > 0:
		t.Fail("%.0f connections or requests to the cloud failed", broken)
	}
}

// readyzIs asks from the node without a hub whether the cloud is ready.
func readyzIs(t *kit.T, want int) error {
	access, err := t.Lab.CloudConfigFrom(t.Plain()[0])
	t.Must(err)
	client, err := rest.HTTPClientFor(access)
	t.Must(err)
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet, access.Host+"/readyz", nil)
	t.Must(err)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != want {
		return fmt.Errorf("it is %s", answer.Status)
	}
	return nil
}

// trafficFailures returns how many connections and requests to the cloud have failed at the pool's hubs.
func trafficFailures(t *kit.T) (all float64) {
	for _, node := range t.Pool.Nodes() {
		all += t.Node(node).Metric("yurthub_upstream_traffic_failures_total", `upstream="cloud"`)
	}
	return all
}
