package charts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

type policyBinding = admissionv1.ValidatingAdmissionPolicyBinding

// BenchmarkLeaseUpdate measures what the chart's policies cost per heartbeat, in rounds with and without them on one server: the
// time of one update after another, the CPU of kube-apiserver, and its time in the plugin. "ratio" is with to without.
// Run it with -benchtime 20000x.
func BenchmarkLeaseUpdate(b *testing.B) {
	cfg := policed(b)
	cfg.QPS = -1
	c := cloudtest.Client(b, cfg)
	var bindings []*policyBinding
	for _, s := range verbatim(b) {
		if s.object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			binding := &policyBinding{}
			if err := c.Get(b.Context(), client.ObjectKeyFromObject(s.object), binding); err != nil {
				b.Fatal(err)
			}
			bindings = append(bindings, binding)
		}
	}
	l := lease("bench", corev1.NamespaceNodeLease, false)
	create(b, c, l)
	defer func() {
		if err := c.Delete(context.WithoutCancel(b.Context()), l); err != nil {
			b.Error(err)
		}
	}()
	beat := func() {
		now := metav1.NewMicroTime(time.Now())
		l.Spec.RenewTime = &now
		if err := c.Update(b.Context(), l); err != nil {
			b.Fatal(err)
		}
	}
	const rounds = 10
	each := max(b.N/(2*rounds), 1)
	var took, cpu, plugin [2]float64
	for i := range 2 * rounds {
		setBound(b, cfg, bindings, i%2 == 1)
		for range each / 10 {
			beat()
		}
		cpuBefore, pluginBefore := spent(b, cfg)
		start := time.Now()
		for range each {
			beat()
		}
		took[i%2] += time.Since(start).Seconds()
		cpuAfter, pluginAfter := spent(b, cfg)
		cpu[i%2] += cpuAfter - cpuBefore
		plugin[i%2] += pluginAfter - pluginBefore
	}
	n := float64(each * rounds)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[0]/n*1e6, "us-without")
	b.ReportMetric(took[1]/n*1e6, "us-with")
	b.ReportMetric(took[1]/took[0], "ratio")
	b.ReportMetric(cpu[0]/n*1e6, "cpu-us-without")
	b.ReportMetric(cpu[1]/n*1e6, "cpu-us-with")
	b.ReportMetric(cpu[1]/cpu[0], "cpu-ratio")
	b.ReportMetric(plugin[0]/n*1e6, "policies-us-without")
	b.ReportMetric(plugin[1]/n*1e6, "policies-us-with")
}

// setBound has the policies enforced or not, and waits until it is so.
func setBound(b *testing.B, cfg *rest.Config, bindings []*policyBinding, bound bool) {
	b.Helper()
	c := cloudtest.Client(b, cfg)
	for _, binding := range bindings {
		fresh := &policyBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, Spec: binding.Spec}
		if bound {
			create(b, c, fresh)
		} else if err := client.IgnoreNotFound(c.Delete(b.Context(), fresh)); err != nil {
			b.Fatal(err)
		}
	}
	if bound {
		awaitPolicies(b, cfg)
		return
	}
	cloudtest.Eventually(b, "the policies are not enforced", func() error {
		return c.Create(b.Context(), lease("any", corev1.NamespaceNodeLease, true), client.DryRunAll)
	})
}

// spent is what kube-apiserver has used so far: CPU, and time in the plugin that evaluates policies, both in seconds.
func spent(b *testing.B, cfg *rest.Config) (cpu, plugin float64) {
	b.Helper()
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	content, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const duration = "apiserver_admission_controller_admission_duration_seconds_sum" +
		`{name="ValidatingAdmissionPolicy",operation="UPDATE"`
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "process_cpu_seconds_total":
			cpu = parseFloat(b, value)
		case strings.HasPrefix(name, duration):
			plugin += parseFloat(b, value)
		}
	}
	if cpu == 0 || plugin == 0 {
		b.Fatalf("the metrics of kube-apiserver say CPU %v s, policies %v s: they are called otherwise now", cpu, plugin)
	}
	return cpu, plugin
}

func parseFloat(b *testing.B, text string) float64 {
	b.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkPoliciesInALargeCluster measures requests that policies are about, where there are so many pools of 10 nodes, each
// with a YurtCoordinator: with the policies and without, on a server each. Run it with -benchtime 1x.
func BenchmarkPoliciesInALargeCluster(b *testing.B) {
	for _, pools := range []int{200, 1000} {
		for _, with := range []bool{false, true} {
			b.Run(fmt.Sprintf("pools=%d/policies=%t", pools, with), func(b *testing.B) {
				// The flag is as it would be, but whoever sets one has a server of its own.
				cfg := cloudtest.Start(b, cloudtest.Flag("disable-admission-plugins", "ServiceAccount"))
				cfg.QPS = -1
				c := cloudtest.Client(b, cfg)
				populate(b, c, pools)
				if with {
					applyPolicies(b, c)
					awaitPolicies(b, cfg)
				}
				b.ReportMetric(0, "ns/op")
				for what, do := range largeRequests(b, c) {
					b.ReportMetric(median(b, do).Seconds()*1000, "ms-"+what)
				}
			})
		}
	}
}

// populate makes what coordinator-controller would find, and make of it.
func populate(b *testing.B, c client.Client, pools int) {
	b.Helper()
	var coordinators strings.Builder
	coordinators.WriteByte('\n')
	var working errgroup.Group
	working.SetLimit(16)
	for p := range pools {
		pool := fmt.Sprintf("p%04d", p)
		fmt.Fprintf(&coordinators, "%[1]s=%[1]s\n", pool)
		working.Go(func() error {
			for n := range 10 {
				if err := c.Create(b.Context(), node(fmt.Sprintf("%s-n%d", pool, n), pool, nil)); err != nil {
					return err
				}
			}
			return c.Create(b.Context(), coordinator(pool, pool))
		})
	}
	if err := working.Wait(); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{
		edge.ConfigMapCoordinatedPools: coordinators.String(), edge.ConfigMapAutonomousPools: "\nother=other-n1\n",
	} {
		create(b, c, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name},
			Data:       map[string]string{edge.RollEntry: text},
		})
	}
}

// largeRequests are by what they do. The Node is as large as that of a kubelet that has 50 images.
func largeRequests(b *testing.B, c client.Client) map[string]func() error {
	b.Helper()
	large, empty := node("large", "p0001", nil), &v1beta2.NodePool{}
	create(b, c, large)
	for i := range 50 {
		large.Status.Images = append(large.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.org/team/app-%02d@sha256:%s", i, strings.Repeat("0123456789abcdef", 4)),
				fmt.Sprintf("registry.example.org/team/app-%02d:v1.2.3", i),
			},
			SizeBytes: 1 << 20,
		})
	}
	if err := c.Status().Update(b.Context(), large); err != nil {
		b.Fatal(err)
	}
	empty.Name = "empty"
	create(b, c, empty)
	tainted := false
	return map[string]func() error{
		"taint": func() error {
			patch := client.MergeFrom(large.DeepCopy())
			if tainted = !tainted; tainted {
				large.Spec.Taints = []corev1.Taint{{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
			} else {
				large.Spec.Taints = nil
			}
			return c.Patch(b.Context(), large, patch)
		},
		"node-status": func() error {
			patch := client.MergeFrom(large.DeepCopy())
			large.Status.NodeInfo.KubeletVersion = strconv.FormatInt(time.Now().UnixNano(), 10)
			return c.Status().Patch(b.Context(), large, patch)
		},
		"new-coordinator":    func() error { return c.Create(b.Context(), coordinator("new", "new"), client.DryRunAll) },
		"deletion-of-a-pool": func() error { return c.Delete(b.Context(), empty, client.DryRunAll) },
	}
}

// median is how long it takes.
func median(b *testing.B, do func() error) time.Duration {
	b.Helper()
	const rounds = 31
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[rounds/2]
}
