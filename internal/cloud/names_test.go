package cloud

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yurtcoordinator/internal/cloud/coordinator"
)

// TestMetricsAreDocumented: docs/metrics.md lists what the program registers, and nothing else. Alerts and dashboards are held
// to that page.
func TestMetricsAreDocumented(t *testing.T) {
	stub := &cloudStub{t: t, patches: make(chan patch, 16)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/apps.openyurt.io/") {
			http.NotFound(w, r) // our kinds are not installed
			return
		}
		stub.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, stop := context.WithTimeout(quiet(t), 2*time.Minute)
	defer stop()
	c := Config{
		Heartbeats: true, Autonomy: true, PoolCuts: true, Signer: true, NodePools: true, AppSets: true, Coordinators: true,
		PoolSettings:  true,
		Coordinator:   Coordinator{Program: coordinator.Program{Image: "i", Release: "v0.2.0", Kubernetes: "v1.36.3"}},
		Connect:       Kubeconfig(kubeconfigFor(t, server.URL)),
		HealthAddress: freeAddress(t), MetricsAddress: freeAddress(t),
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- Run(running, c) }()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it ended: %w", err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HealthAddress+"/healthz", nil)
		if err != nil {
			return false, err
		}
		resp, notYet := http.DefaultClient.Do(req)
		if notYet == nil {
			err = resp.Body.Close()
		}
		return notYet == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	registered := namesIn(t, metrics.Registry)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("`(coordinator_controller_[a-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	var names []string
	for _, d := range documented {
		names = append(names, d[1])
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, registered) {
		for _, name := range registered {
			if !slices.Contains(names, name) {
				t.Errorf("docs/metrics.md lacks %s", name)
			}
		}
		for _, name := range names {
			if !slices.Contains(registered, name) {
				t.Errorf("docs/metrics.md has %s, which nobody registers", name)
			}
		}
	}
}

var ofDesc = regexp.MustCompile(`fqName: "(coordinator_controller_[a-z0-9_]+)"`)

// namesIn returns the names of our metrics, sorted.
func namesIn(t *testing.T, registry any) (names []string) {
	t.Helper()
	described, ok := registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("a %T can't be described", registry)
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		described.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		if m := ofDesc.FindStringSubmatch(d.String()); m != nil {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
