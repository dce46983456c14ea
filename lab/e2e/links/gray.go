package links

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var grayScenarios = []kit.Scenario{{
	Name: "gray-coordinator", Lab: kit.Unrelayed(stock(withStandby())), Run: grayCoordinator,
	Doc: "The first coordinator's store takes no more writes, while pings and reads are answered. All hubs go on with the " +
		"standby and stay there until the first is started again. A node that is cut off is never NotReady.",
}}

func grayCoordinator(t *kit.T) {
	names := t.Pool.Nodes()
	first := names[0]
	node := others(names[2:], standsBy(t, time.Minute, names))[0]
	t.Say("%s is cut off from the cloud", node)
	began := t.Cut(node)
	t.Node(node).Delegated(began)
	moves := func() (sum float64) {
		for _, name := range names {
			sum += t.Node(name).Metric("yurthub_coordinator_home_changes_total")
		}
		return sum
	}
	moved, processes := moves(), t.Node(first).Processes("yurt-coordinator")

	t.Say("the coordinator on %s takes no more writes", first)
	gray := time.Now()
	refuseWrites(t, first)
	answersOnly(t, first)
	t.Eventually(t.Config.Timing.Grace, "every hub works with the standby, and one leads there", func() error {
		hubs := t.Pool.Hubs()
		for _, name := range names {
			h := hubs[name]
			if len(h.Coordinators) != t.Config.Coordinators || !h.Coordinators[1].Home || h.Leader == "" ||
				h.Leader != hubs[first].Leader || hubs[h.Leader].Role != kit.RoleLeader {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
	t.Figure("gray_to_standby_s", time.Since(gray).Seconds())
	t.Hold(3*t.Config.Timing.Grace, "three grace periods with a coordinator that takes no writes")
	answersOnly(t, first)
	if now := t.Node(first).Processes("yurt-coordinator"); !kit.SameKeys(now, processes) {
		t.Fail("the coordinator did not live on: %v, before %v", now, processes)
	}
	if n := moves() - moved; n != float64(len(names)) {
		t.Fail("hubs changed their coordinator %v times, want once each", n)
	}
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(node, began, time.Now()).Seconds())
	t.NeverNotReady(began, names...)

	t.Say("the coordinator on %s is started again", first)
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, first, lab.Coordinator))
	standsBy(t, 2*time.Minute, names)
	healed := t.Heal(node)
	t.Node(node).Direct(healed)
	t.NeverNotReady(began, names...)
}

// refuseWrites raises the alarm CORRUPT in the etcd of a coordinator. Then etcd refuses every write and still answers reads. An
// etcd of one member never raises this alarm by itself. A full store has the same effect, but only for a second: then the
// coordinator ends, to start again empty.
func refuseWrites(t *kit.T, node string) {
	conn, err := grpc.NewClient("passthrough:///etcd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return t.Lab.Dial(ctx, node, "/run/yurt-coordinator/etcd.sock")
		}))
	t.Must(err)
	defer conn.Close() //nolint:errcheck // it has served
	_, err = etcdserverpb.NewMaintenanceClient(conn).Alarm(t.Ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_CORRUPT,
	})
	t.Must(err)
}

// answersOnly fails unless the coordinator in slot 0 answers every hub's pings, and reads, but no write.
func answersOnly(t *kit.T, node string) {
	for name, h := range t.Pool.Hubs() {
		if h.Coordinators[0].Link != "up" {
			t.Fail("%s says %+v", name, h.Coordinators)
		}
	}
	access, err := t.Lab.CoordinatorConfigAt(1, 0, node)
	t.Must(err)
	client := t.Client(access)
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(t.Ctx, node, metav1.GetOptions{})
	t.Must(err)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if _, err := leases.Update(t.Ctx, lease, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Fail("a write to the coordinator: %v, want that its store refuses it", err)
	}
}
