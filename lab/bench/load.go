package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// The load takes about two minutes in all.
const (
	getRounds, getRound   = 13, 300 * time.Millisecond
	manyConnections       = 16
	manyRounds, manyRound = 13, 400 * time.Millisecond

	// Heartbeats have pauses between them, because no kubelet sends them without a pause.
	beatRounds, beatsEach, beatEvery = 9, 40, 10 * time.Millisecond

	// settle is how long the programs are left alone before they count as idle. In this time they collect the garbage of their
	// start.
	settle = 30 * time.Second
)

// load is a run of Load.
type load struct {
	spec  Spec
	admin kubernetes.Interface
	// hub, proxy and server are the processes of the node's hub, the plain proxy and the cloud's API server.
	hub, proxy, server int
	m                  Measured
}

// Load measures, on a node's network. It makes the Node that it needs and leaves it: the lab ends with the run.
func Load(ctx context.Context, s Spec, progress func(string)) (m Measured, err error) {
	l := &load{spec: s}
	if l.admin, err = kubernetes.NewForConfig(s.AsAdmin.config()); err != nil {
		return Measured{}, err
	}
	if l.hub, err = findProcess("yurthub", "--node-name="+s.Node); err != nil {
		return Measured{}, err
	}
	plain, err := startProxy(ctx, s.Proxy, s.AsNode)
	if err != nil {
		return Measured{}, err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	l.proxy, l.spec.asProxy = plain.pid, plain.access
	if s.Leader != "" {
		err := l.shared(ctx, progress)
		return l.m, err
	}
	if l.server, err = findProcess("kube-apiserver"); err != nil {
		return Measured{}, err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"at rest", l.rest},
		{"making its Node", l.prepare},
		{"GETs on 1 connection", l.getOne},
		{fmt.Sprintf("GETs on %d connections", manyConnections), l.getMany},
		{"heartbeats", l.heartbeats},
		{"at rest after the load", func(context.Context) (err error) {
			l.m.HubLoaded, err = memoryOf(l.hub)
			return err
		}},
	} {
		progress(step.what)
		if err := step.do(ctx); err != nil {
			return Measured{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return l.m, nil
}

func (a Access) config() *rest.Config {
	return &rest.Config{
		Host: a.Server, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA, CertData: a.Cert, KeyData: a.Key},
		BearerToken: a.Token,
		QPS:         -1, Timeout: 0, // watches have none; calls have contexts
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }, // no proxy, as this function's type defines it
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
}

// client returns the node's client over a way.
func (l *load) client(w Way) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(l.spec.access(w).config())
}

// rest measures the idle programs before any request.
func (l *load) rest(ctx context.Context) error {
	if err := run.Pause(ctx, settle); err != nil {
		return err
	}
	coordinator, err := findProcess("yurt-coordinator")
	if err != nil {
		return err
	}
	if l.m.CoordinatorIdle, err = memoryOf(coordinator); err != nil {
		return err
	}
	l.m.HubIdle, err = memoryOf(l.hub)
	return err
}

// prepare makes the node's own Node.
func (l *load) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := l.admin.CoreV1().Nodes().Create(ctx, ownNode(l.spec.Node), metav1.CreateOptions{})
	return err
}

// filler returns a text of that many bytes.
func filler(size int) string { return strings.Repeat("0123456789abcdef", size/16) }

// ownNode returns a Node as a small kubelet reports it, about 2 KB.
func ownNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		edge.LabelNodePool: "p1",
	}}}
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	n.Status.Capacity, n.Status.Allocatable = amounts, amounts
	for i := range 8 {
		image := fmt.Sprintf("registry.example.org/site/image-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{image + ":v1", image + "@sha256:" + filler(64)}, SizeBytes: 1 << 24,
		})
	}
	return n
}

func (l *load) nodePath() string { return "/api/v1/nodes/" + l.spec.Node }

func (l *load) getOne(ctx context.Context) (err error) {
	l.m.GetOne, err = byEncoding(func(e Encoding) (Trial, error) {
		return l.gets(ctx, reading{l.nodePath(), e, 1, getRounds, getRound}, uncounted)
	})
	return err
}

func (l *load) getMany(ctx context.Context) error {
	var profiling sync.WaitGroup
	var profileErr error
	if l.spec.Profile {
		profiling.Go(func() { profileErr = l.profileHub(ctx) })
	}
	var err error
	l.m.GetMany, err = byEncoding(func(e Encoding) (Trial, error) {
		return l.gets(ctx, reading{l.nodePath(), e, manyConnections, manyRounds, manyRound}, l.counted)
	})
	profiling.Wait()
	return errors.Join(err, profileErr)
}

func byEncoding(do func(Encoding) (Trial, error)) (map[Encoding]Trial, error) {
	out := map[Encoding]Trial{}
	for _, e := range []Encoding{JSON, Protobuf} {
		t, err := do(e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
		out[e] = t
	}
	return out, nil
}

// profileHub takes a profile of the hub's processor time while getMany runs, then one of its allocations so far.
func (l *load) profileHub(ctx context.Context) error {
	seconds := int((2 * 4 * manyRounds * manyRound).Seconds())
	l.m.Profiles = map[string][]byte{}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, p := range []struct{ name, path string }{
		{"hub-cpu.pprof", fmt.Sprintf("profile?seconds=%d", seconds)}, {"hub-allocs.pprof", "allocs"},
	} {
		content, err := Get(ctx, client, l.spec.HubHealth+"/debug/pprof/"+p.path)
		if err != nil {
			return err
		}
		l.m.Profiles[p.name] = content
	}
	return nil
}
