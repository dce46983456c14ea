package pool

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/usage"
)

const (
	topNodes       = 30
	topPodsOfANode = 100
)

// BenchmarkTop reports what kubectl top costs a coordinator of 30 nodes of 100 Pods: memory in units of 1024², the time and
// the CPU time until the first answer and of one more, and the CPU time of reading all kubelets once. The kubelets are
// played, and measure anew whenever they are read; real ones do every 10 to 15 s, and are waited for.
//
//	go test ./internal/pool -run '^$' -bench Top -benchtime 1x
func BenchmarkTop(b *testing.B) {
	file, _ := buildProgram(b)
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute+*idleFor)
		benchTop(ctx, b, startProgram(ctx, b, file))
		cancel()
	}
}

func benchTop(ctx context.Context, b *testing.B, p *program) {
	api := p.almighty(b)
	var readings []*atomic.Int64
	if _, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	for i := range topNodes {
		n := fmt.Sprintf("n%d", i)
		pods := make([]string, topPodsOfANode)
		for k := range pods {
			pods[k] = fmt.Sprintf("%s-%d", n, k)
		}
		status, asked := kubeletOf(b, p.ca, fmt.Sprintf("127.0.1.%d:10250", i+1), n, pods...)
		readings = append(readings, asked)
		if _, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n}, Status: status,
		}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		each(b, len(pods), func(k int) error {
			_, err := api.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: pods[k]},
				Spec:       corev1.PodSpec{NodeName: n, Containers: []corev1.Container{{Name: "web", Image: "i"}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	read := func() (sum int64) {
		for _, each := range readings {
			sum += each.Load()
		}
		return sum
	}
	p.rest(ctx, *idleFor)
	p.report(b, "idle")
	if n := read(); n != 0 {
		b.Fatalf("kubelets were read %d times before anybody asked", n)
	}

	c := &coordinator{ca: p.ca, address: p.address}
	person := c.http(b, c.certificate(b, pooltest.Operator()))
	top := func(when string) {
		began, busy := time.Now(), p.processor(b)
		code, text := c.get(b, person, "/apis/metrics.k8s.io/v1beta1/pods")
		if n := strings.Count(text, `"window"`); code != http.StatusOK || n != topNodes*topPodsOfANode {
			b.Fatalf("%d, figures of %d Pods", code, n)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), when+"-ms")
		b.ReportMetric(float64((p.processor(b) - busy).Milliseconds()), when+"-cpu-ms")
	}
	top("first")
	p.report(b, "first")
	top("again")
	person.CloseIdleConnections()

	before, busy := read(), p.processor(b)
	p.rest(ctx, 6*usage.Resolution)
	times := float64(read()-before) / topNodes
	if times < 1 {
		b.Fatal("kubelets are not read any more")
	}
	b.ReportMetric(float64((p.processor(b)-busy).Milliseconds())/times, "reading-cpu-ms")
	p.report(b, "reading")
	p.rest(ctx, usage.Idle)
	before = read()
	p.rest(ctx, 2*usage.Resolution)
	if n := read() - before; n != 0 {
		b.Fatalf("kubelets were read %d times when nobody had asked for %v", n, usage.Idle)
	}
	p.report(b, "forgotten")
	p.stop(b)
	b.ReportMetric(0, "ns/op")
}
