package usage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// kubelet is a node with one Pod that uses half a core, and measures every so often.
type kubelet struct {
	every time.Duration
	began time.Time

	mu     sync.Mutex
	silent bool
	read   int
}

func (k *kubelet) Scrape(context.Context) *storage.MetricsBatch {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read++
	batch := &storage.MetricsBatch{
		Nodes: map[string]storage.MetricsPoint{}, Pods: map[types.NamespacedName]storage.PodMetricsPoint{},
	}
	if k.silent {
		return batch
	}
	measured := time.Since(k.began).Truncate(k.every)
	point := storage.MetricsPoint{
		StartTime: k.began, Timestamp: k.began.Add(measured),
		CumulativeCPUUsed: uint64(measured.Nanoseconds() / 2), MemoryUsage: 1 << 20,
	}
	batch.Nodes["n1"] = point
	batch.Pods[types.NamespacedName{Namespace: "default", Name: "web"}] = storage.PodMetricsPoint{
		Containers: map[string]storage.MetricsPoint{"web": point},
	}
	return batch
}

func (k *kubelet) readings() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read
}

func (k *kubelet) fallSilent(silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent = silent
}

// metered runs f beside a Meter of one kubelet, in fake time that began an hour after the kubelet did.
func metered(t *testing.T, every time.Duration, f func(m *Meter, k *kubelet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{every: every, began: time.Now()}
		time.Sleep(time.Hour)
		m := newMeter(nodeLister{}, podLister{}, k, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		f(m, k)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func ask(t *testing.T, m *Meter) (cpuOfNode, cpuOfPod string, waited time.Duration) {
	t.Helper()
	began := time.Now()
	pods, err := m.GetPodMetrics(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := m.GetNodeMetrics(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) == 1 {
		cpuOfNode = nodes[0].Usage.Cpu().String()
	}
	if len(pods) == 1 {
		cpuOfPod = pods[0].Containers[0].Usage.Cpu().String()
	}
	return cpuOfNode, cpuOfPod, time.Since(began)
}

func TestFirstFiguresAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		measures time.Duration
		want     time.Duration
	}{
		{time.Millisecond, firstGap},
		{10 * time.Second, 4 * firstGap},
		{15 * time.Second, 5 * firstGap},
	} {
		metered(t, c.measures, func(m *Meter, _ *kubelet) {
			node, pod, waited := ask(t, m)
			if node != "500m" || pod != "500m" || waited != c.want {
				t.Errorf("measured every %s: node %q, Pod %q after %s, want half a core after %s",
					c.measures, node, pod, waited, c.want)
			}
			if _, _, waited := ask(t, m); waited != 0 {
				t.Errorf("the second request waited %s", waited)
			}
		})
	}
}

func TestSilentKubelet(t *testing.T) {
	metered(t, time.Second, func(m *Meter, k *kubelet) {
		k.fallSilent(true)
		node, pod, waited := ask(t, m)
		if node != "" || pod != "" || waited != 2*patience {
			t.Errorf("node %q, Pod %q after %s for two requests, want nothing after %s", node, pod, waited, 2*patience)
		}
		k.fallSilent(false)
		if node, pod, waited := ask(t, m); node != "500m" || pod != "500m" || waited > 2*firstGap {
			t.Errorf("node %q, Pod %q after %s when it speaks again, want half a core within %s",
				node, pod, waited, 2*firstGap)
		}
	})
}

func TestNobodyAsks(t *testing.T) {
	metered(t, time.Second, func(m *Meter, k *kubelet) {
		time.Sleep(time.Hour)
		if n := k.readings(); n != 0 {
			t.Errorf("read %d times before anybody asked", n)
		}
		ask(t, m)
		time.Sleep(Idle + Resolution)
		read := k.readings()
		if most := int((Idle+Resolution)/Resolution) + 2; read > most {
			t.Errorf("read %d times for one request, want %d at most", read, most)
		}
		time.Sleep(time.Hour)
		if n := k.readings(); n != read {
			t.Errorf("read %d times more after %s", n-read, Idle)
		}
		// What was read an hour ago counts no more.
		if node, _, waited := ask(t, m); node != "500m" || waited != firstGap {
			t.Errorf("node %q after %s, want half a core after %s", node, waited, firstGap)
		}
	})
}

type endless struct{}

func (endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(neverEnds{})}, nil
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return len(p), nil }

func TestAnswersAreBounded(t *testing.T) {
	asked := ""
	b := bounded{func(_ context.Context, node, host string) (http.RoundTripper, error) {
		asked = node + " " + host
		return endless{}, nil
	}}
	r, err := http.NewRequestWithContext(context.WithValue(t.Context(), nodeKey{}, "n1"), http.MethodGet,
		"https://192.0.2.1:10250", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := b.RoundTrip(r)
	if want := "n1 192.0.2.1"; asked != want {
		t.Errorf("the kubelet of %q is read, want %q", asked, want)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, response.Body)
	var tooLarge *http.MaxBytesError
	if n != maxMetrics || !errors.As(err, &tooLarge) {
		t.Errorf("%d bytes and %v, want %d and an error", n, err, maxMetrics)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}
