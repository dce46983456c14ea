package edge

import (
	"math"
	"testing"
	"time"
)

func TestLeasePath(t *testing.T) {
	const want = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	if got := NodeName("n1").LeasePath(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestCoordinatorServerNameIn(t *testing.T) {
	const service = "yurt-coordinator-apiserver.kube-system.svc"
	for want, names := range map[string][]string{
		"p1." + service: {"yurt-coordinator-apiserver", service, "p1." + service},
		"":              {service, "." + service, "p1." + service + ".cluster"},
	} {
		if got := CoordinatorServerNameIn(names); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
	if got := CoordinatorServerNameIn([]string{PoolName("p2").CoordinatorServerName()}); got != "p2."+service {
		t.Error(got)
	}
}

func TestReportLasts(t *testing.T) {
	if got := ReportLasts(nil); got != 150*time.Second {
		t.Errorf("a report that does not say for how long lasts %v", got)
	}
	for seconds, want := range map[int32]time.Duration{
		-1: 150 * time.Second, 0: 150 * time.Second, 40: 150 * time.Second, 120: 150 * time.Second, 600: 750 * time.Second,
		math.MaxInt32: 15 * time.Minute,
	} {
		if got := ReportLasts(&seconds); got != want {
			t.Errorf("%d s: %v, want %v", seconds, got, want)
		}
	}
}
