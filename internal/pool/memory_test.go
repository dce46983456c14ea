package pool

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

var programFile = flag.String("program", "",
	"a yurt-coordinator to measure instead of one built now; a load needs a role in it, see withLoad")

var patchFor = flag.Duration("patch", 60*time.Second, "how long BenchmarkMemory patches at full speed")

// objectSize is what a Node of a real cluster takes, images and all.
const objectSize = 8 << 10

// BenchmarkMemory reports what memory the program has, in units of 1024², after what its hubs make it hold. The budgets
// are 180 rss-MB loaded and 256 after patching; *-max-MB is the highest of a sample every second.
//
//	go test ./internal/pool -run '^$' -bench Memory -benchtime 1x
func BenchmarkMemory(b *testing.B) {
	file, _ := buildProgram(b)
	b.Run("PodsAndNodes", func(b *testing.B) {
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute+*patchFor)
			benchPodsAndNodes(ctx, b, startProgram(ctx, b, file))
			cancel()
		}
	})
	b.Run("PoolResources", func(b *testing.B) {
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
			benchPoolResources(ctx, b, startProgram(ctx, b, file))
			cancel()
		}
	})
}

func benchPodsAndNodes(ctx context.Context, b *testing.B, p *program) {
	client := p.almighty(b)
	each(b, 500, func(i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: large(fmt.Sprintf("n%d", i))},
			metav1.CreateOptions{})
		return err
	})
	each(b, 1000, func(i int) error {
		_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: large(fmt.Sprintf("p%d", i)),
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i%500), Containers: []corev1.Container{
				{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		return err
	})
	p.rest(ctx, 15*time.Second)
	p.report(b, "loaded")

	sampling, sampled := make(chan struct{}), make(chan map[string]float64)
	go func() {
		most := map[string]float64{}
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
				now := p.memory(b)
				for unit, megabytes := range now {
					most[unit] = max(most[unit], megabytes)
				}
				if n%10 == 9 {
					b.Logf("%d s: %v", n+1, now)
				}
			case <-sampling:
				sampled <- most
				return
			}
		}
	}()
	var patches atomic.Int64
	began := time.Now()
	each(b, 8, func(int) error {
		for time.Since(began) < *patchFor {
			patch, err := json.Marshal(map[string]any{"metadata": large("")})
			if err != nil {
				return err
			}
			if n := rand.N(1500); n < 500 {
				_, err = client.CoreV1().Nodes().Patch(ctx, fmt.Sprintf("n%d", n), types.MergePatchType, patch,
					metav1.PatchOptions{})
			} else {
				_, err = client.CoreV1().Pods("default").Patch(ctx, fmt.Sprintf("p%d", n-500), types.MergePatchType, patch,
					metav1.PatchOptions{})
			}
			if err != nil {
				return err
			}
			patches.Add(1)
		}
		return nil
	})
	b.ReportMetric(float64(patches.Load())/patchFor.Seconds(), "patches/s")
	p.report(b, "patched")
	close(sampling)
	for unit, megabytes := range <-sampled {
		b.ReportMetric(megabytes, "most-"+unit)
	}
	p.rest(ctx, 15*time.Second)
	p.report(b, "rested")
	p.stop(b)
	b.ReportMetric(0, "ns/op")
}

// benchPoolResources pushes what the leader of a large pool does. What a client lists through kube-apiserver is decoded
// for it: its figures are after that.
func benchPoolResources(ctx context.Context, b *testing.B, p *program) {
	client := p.almighty(b)
	c := &coordinator{ca: p.ca, address: p.address}
	c.lead(b, "n1", 1)
	all := manySlices(b, 5000)
	leader := c.http(b, c.certificate(b, pooltest.Node("n1")))
	began := time.Now()
	a := c.push(b, leader, pooltest.SliceResource, 0, 1, pooltest.Frames(b, pooltest.ProtobufType(sliceKind),
		pooltest.WholeStream(10_000, all...)...))
	if a.Code != http.StatusOK {
		b.Fatal(a.Body)
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "push-ms")
	began = time.Now()
	a = c.push(b, leader, pooltest.SliceResource, 0, 1, pooltest.Frames(b, pooltest.ProtobufType(sliceKind),
		pooltest.WholeStream(10_001, all...)...))
	if a.Code != http.StatusOK {
		b.Fatal(a.Body)
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "again-ms")
	each(b, 1000, func(i int) error {
		_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, heartbeat(fmt.Sprintf("n%d", i)),
			metav1.CreateOptions{})
		return err
	})
	leader.CloseIdleConnections()
	p.rest(ctx, 45*time.Second)
	p.report(b, "loaded")

	if code, _ := c.get(b, leader, edge.PathMirror+"/discovery.k8s.io/v1/endpointslices"); code != http.StatusOK {
		b.Fatalf("list from the mirror: %d", code)
	}
	p.report(b, "mirror-listed")
	for range 3 {
		list, err := client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != len(all) {
			b.Fatalf("list from the API: %v", err)
		}
	}
	p.report(b, "api-listed")
	p.stop(b)
	b.ReportMetric(0, "ns/op")
}

// manySlices returns EndpointSlices of ten addresses.
func manySlices(t testing.TB, n int) (all []stream.Object) {
	t.Helper()
	for i := range n {
		addresses := make([]string, 10)
		for n := range addresses {
			addresses[n] = fmt.Sprintf("10.%d.%d.%d", i/250, i%250, n)
		}
		all = append(all, pooltest.AsObject(t, pooltest.CloudSlice(fmt.Sprintf("slice-%d", i), 1000+i, addresses...)))
	}
	return all
}

// each calls do for 0 to n-1, some at a time.
func each(b *testing.B, n int, do func(i int) error) {
	b.Helper()
	var group sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// large is metadata that no two objects, and no two versions of one, have in common.
func large(name string) metav1.ObjectMeta {
	var text strings.Builder
	for text.Len() < objectSize {
		fmt.Fprintf(&text, "%016x", rand.Uint64())
	}
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{"large": text.String()}}
}

func (p *program) report(b *testing.B, when string) {
	b.Helper()
	for unit, megabytes := range p.memory(b) {
		b.ReportMetric(megabytes, when+"-"+unit)
	}
}

// almighty is a client that may do what no client may, by the role that buildProgram adds.
func (p *program) almighty(b *testing.B) kubernetes.Interface {
	b.Helper()
	cert := p.ca.Issue(b, pkix.Name{CommonName: "load", Organization: []string{loadGroup}}, pooltest.Tomorrow())
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + p.address, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca.Pem, CertData: cert.Cert, KeyData: cert.Key},
		ContentConfig:   rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
	})
	if err != nil {
		b.Fatal(err)
	}
	return client
}
