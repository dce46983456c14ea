package front

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiWork answers a GET of a Pod as an API server does: it makes the object and encodes it, which takes about as long
// as kube-apiserver's own share of the 1.1 ms that a GET takes (see docs of the benchmark below).
func apiWork(pod *corev1.Pod, spin time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for start := time.Now(); time.Since(start) < spin; {
			if _, err := pod.DeepCopy().Marshal(); err != nil {
				panic(err)
			}
		}
		data, err := pod.Marshal()
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(data)
	}
}

func benchPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: map[string]string{}}}
	for i := range 40 {
		pod.Labels[fmt.Sprintf("example.org/label-%d", i)] = fmt.Sprintf("value-of-some-length-%d", i)
	}
	return pod
}

// direct returns a client of the server itself, as kubelet has one: HTTP/2 over TLS.
func direct() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	}}
}

// through returns a client of the hub: HTTP/1.1 without TLS, or HTTP/2 without TLS.
func through(h2 bool) *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!h2)
	t.Protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: t}
}

// load makes n requests with some clients at once and returns how long each took, in order, and all.
func load(b *testing.B, clients []*http.Client, url string, n int) (each []time.Duration, all time.Duration) {
	b.Helper()
	each = make([]time.Duration, n)
	var next atomic.Int64
	var working sync.WaitGroup
	start := time.Now()
	for _, c := range clients {
		working.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				began := time.Now()
				res, err := c.Get(url)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				each[i] = time.Since(began)
			}
		})
	}
	working.Wait()
	all = time.Since(start)
	slices.Sort(each)
	return each, all
}

// BenchmarkGET compares GETs through the hub with direct ones in turns, so that a noisy machine disturbs both alike.
// p50-ratio and rate-ratio are the figures of DESIGN §8 (at most 1.3, at least 0.9).
func BenchmarkGET(b *testing.B) {
	s, u := cloud(b, apiWork(benchPod(), 500*time.Microsecond))
	address, _ := hub(b, Config{Cloud: u})
	const path = "/api/v1/namespaces/default/pods/p"
	for _, connections := range []int{1, 16} {
		for _, via := range []struct {
			name string
			h2   bool
		}{{"http1", false}, {"h2c", true}} {
			b.Run(fmt.Sprintf("%s/%d", via.name, connections), func(b *testing.B) {
				var straight, hubbed []*http.Client
				for range connections {
					straight, hubbed = append(straight, direct()), append(hubbed, through(via.h2))
				}
				defer func() {
					for _, c := range append(straight, hubbed...) {
						c.CloseIdleConnections()
					}
				}()
				load(b, straight, s.URL+path, 4*connections)
				load(b, hubbed, address+path, 4*connections)
				var d, h []time.Duration
				var dAll, hAll time.Duration
				const rounds = 8
				for range rounds {
					n := max(b.N/rounds, connections)
					each, all := load(b, straight, s.URL+path, n)
					d, dAll = append(d, each...), dAll+all
					each, all = load(b, hubbed, address+path, n)
					h, hAll = append(h, each...), hAll+all
				}
				slices.Sort(d)
				slices.Sort(h)
				p50 := func(each []time.Duration) float64 { return float64(each[len(each)/2].Microseconds()) }
				b.ReportMetric(p50(d), "direct-p50-µs")
				b.ReportMetric(p50(h), "hub-p50-µs")
				b.ReportMetric(p50(h)/p50(d), "p50-ratio")
				b.ReportMetric(dAll.Seconds()/hAll.Seconds(), "rate-ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkWatchThroughput compares the bytes per second of one watch of 1 KB events.
func BenchmarkWatchThroughput(b *testing.B) {
	event := append(make([]byte, 1023), '\n')
	s, u := cloud(b, func(w http.ResponseWriter, r *http.Request) {
		flusher := w.(http.Flusher)
		flusher.Flush()
		for range 20000 {
			if _, err := w.Write(event); err != nil {
				return
			}
			flusher.Flush()
		}
	})
	address, _ := hub(b, Config{Cloud: u})
	const path = "/api/v1/pods?watch=true"
	watch := func(c *http.Client, url string) time.Duration {
		start := time.Now()
		res, err := c.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		n, err := io.Copy(io.Discard, bufio.NewReader(res.Body))
		if err != nil || n != 20000*1024 {
			b.Fatalf("%d bytes, %v", n, err)
		}
		return time.Since(start)
	}
	straight, hubbed := direct(), through(false)
	defer straight.CloseIdleConnections()
	defer hubbed.CloseIdleConnections()
	watch(straight, s.URL+path)
	watch(hubbed, address+path)
	var d, h time.Duration
	b.ResetTimer()
	for b.Loop() {
		d += watch(straight, s.URL+path)
		h += watch(hubbed, address+path)
	}
	b.ReportMetric(float64(d.Microseconds())/float64(b.N)/20000, "direct-µs/event")
	b.ReportMetric(float64(h.Microseconds())/float64(b.N)/20000, "hub-µs/event")
	b.ReportMetric(d.Seconds()/h.Seconds(), "rate-ratio")
}
