package hub

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// BenchmarkColdStart measures the start of a hub that can reach nothing, until a client has read its first answer: a list of 5000
// EndpointSlices with 10 endpoints each, from the disk. The start of a process is not included.
func BenchmarkColdStart(b *testing.B) {
	dir := b.TempDir()
	fillDisk(b, dir, 5000)
	ca, err := pki.Create(b.TempDir(), "ca", nil)
	if err != nil {
		b.Fatal(err)
	}
	node, err := ca.Issue(pki.Request{Name: "n1", CommonName: "system:node:n1", Client: true})
	if err != nil {
		b.Fatal(err)
	}
	ports := freePorts(b, 3) // the last is the cloud's, where nobody listens
	cfg := flags(b, "--node-name=n1", "--ca-file="+ca.Files().Cert, "--cert-file="+node.Cert, "--key-file="+node.Key,
		"--server-addr=https://127.0.0.1:"+ports[2], "--port="+ports[0], "--health-port="+ports[1], "--disk-cache-path="+dir)
	b.ResetTimer()
	for b.Loop() {
		h, err := New(cfg, ends.Ends{})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		firstAnswer(b, "http://127.0.0.1:"+ports[0]+"/apis/discovery.k8s.io/v1/endpointslices", 5000)
		b.StopTimer()
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func fillDisk(b *testing.B, dir string, n int) {
	b.Helper()
	kind := discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	content := stream.Snapshot{Type: stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}, Revision: 10_000}
	for i := range n {
		s := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "load", Name: fmt.Sprintf("slice-%05d", i), ResourceVersion: strconv.Itoa(i + 1),
				Annotations: map[string]string{"filler": strings.Repeat("x", 1000)},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		for e := range 10 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i%250, e)}})
		}
		raw, err := s.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		content.Objects = append(content.Objects, stream.Object{
			Key: stream.Key{Namespace: s.Namespace, Name: s.Name}, Revision: edge.Revision(i + 1), Raw: raw,
		})
	}
	disk, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := disk.Close(); err != nil {
			b.Error(err)
		}
	}()
	services := views.Services.Resource
	slices := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	for _, id := range []store.Collection{{Client: cache.Hub, Resource: slices}, {Client: cache.Hub, Resource: services}} {
		each := content
		if id.Resource != slices {
			each.Objects, each.Type.GroupVersionKind = nil, id.Resource.GroupVersion().WithKind("Service")
		}
		if err := disk.Sink(id).Replace(b.Context(), each); err != nil {
			b.Fatal(err)
		}
	}
	if err := disk.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func freePorts(b *testing.B, n int) (ports []string) {
	b.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// firstAnswer asks until the hub listens, and reads its answer.
func firstAnswer(b *testing.B, url string, objects int) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		answer, err := client.Do(r)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if n := strings.Count(string(body), "slice-"); err != nil || answer.StatusCode != http.StatusOK || n != objects {
			b.Fatalf("%s, %d objects, %v: %.200s", answer.Status, n, err, body)
		}
		return
	}
}
