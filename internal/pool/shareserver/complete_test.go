package shareserver

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestStandingsAreMeasured: what the API shows is measured from the start, with what is pushed besides.
func TestStandingsAreMeasured(t *testing.T) {
	b := newMirrorBench(t, 64<<20)
	declared := map[schema.GroupResource]bool{}
	b.mirror.current = func(r schema.GroupResource) (bool, time.Time) { return declared[r], time.Time{} }
	registry := prometheus.NewRegistry()
	for _, c := range b.mirror.Metrics() {
		registry.MustRegister(c)
	}
	is := func(complete, current string) {
		t.Helper()
		want := "# HELP yurt_coordinator_resource_complete 1 once all of a pool's resource has come since the coordinator " +
			"started, else 0.\n" +
			"# TYPE yurt_coordinator_resource_complete gauge\n" + measured("complete", complete) +
			"# HELP yurt_coordinator_resource_current 1 while the pool's leader says that it brings each change of the " +
			"resource, else 0.\n" +
			"# TYPE yurt_coordinator_resource_current gauge\n" + measured("current", current)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	is("endpoints=0 endpointslices.discovery.k8s.io=0 services=0", "endpoints=0 endpointslices.discovery.k8s.io=0 services=0")
	declared[pooltest.SliceResource.GroupResource()] = true // a word alone
	is("endpoints=0 endpointslices.discovery.k8s.io=0 services=0", "endpoints=0 endpointslices.discovery.k8s.io=0 services=0")
	b.pushSlices(t, 0, pooltest.WholeStream(10, slice("a", 5))...)
	is("endpoints=0 endpointslices.discovery.k8s.io=1 services=0", "endpoints=0 endpointslices.discovery.k8s.io=1 services=0")
	clear(declared)
	is("endpoints=0 endpointslices.discovery.k8s.io=1 services=0", "endpoints=0 endpointslices.discovery.k8s.io=0 services=0")
}

func measured(name, all string) string {
	var text strings.Builder
	for each := range strings.FieldsSeq(all) {
		resource, value, _ := strings.Cut(each, "=")
		text.WriteString("yurt_coordinator_resource_" + name + `{resource="` + resource + `"} ` + value + "\n")
	}
	return text.String()
}
