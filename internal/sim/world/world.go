// Package world simulates a pool of nodes with its cloud: machines with clocks and disks, the network between them, and the
// programs that run there. Hubs, coordinators and coordinator-controller are the product's own, made by its own constructors. All
// API servers, also those of coordinators, come from package model. Kubelets and kube-controller-manager come from package stock.
//
// The programs speak HTTP over TLS over package network, in a bubble of testing/synctest. Only kube-controller-manager needs no
// network, because it is beside its API server.
package world

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/pki"
	"yurtcoordinator/internal/sim/stock"
)

// Config says what a world consists of.
type Config struct {
	Seed                uint64
	Nodes, Coordinators int
	// Unrelayed says that hubs relay for nobody.
	Unrelayed bool
	// Readers says that programs on each node read what changes in the cloud all the time.
	Readers bool
	// Holds is for how long evictions from the pool are held when it is cut off as a whole; 0: not at all.
	Holds time.Duration
	// Dir is the directory with the machines' disks.
	Dir string
	// Say is called with each thing that happens; nil means that nobody is told.
	Say func(format string, args ...any)
}

// World is a simulated pool and its cloud. Call stock.Prepare, make a World with New inside a bubble, and end it with End.
type World struct {
	cfg      Config
	dir      string
	random   uint64 // the seed of the newest program's numbers
	net      *network.Network
	machines map[string]*machine
	// ca signs the cloud's certificates. hubs signs those by which the hubs of the pool recognize each other.
	ca, hubs *pki.Authority
	// cloud is the API server that all use except some hubs. second has the same storage, and is for these hubs.
	cloud, second *server
	slots         []*server
	nodes         []*node
	// judges is kube-controller-manager.
	judges *program
	stop   []func()
	// harms are the events that go on, in the order in which they began.
	harms []happening
	// restored counts how often the cloud's storage was set back, and jolts the events that were over at once.
	restored, jolts int
	// truth is what the cloud has had, nil if nobody reads.
	truth *truth
	mu    sync.Mutex
}

// numbers returns a source of random numbers for one more program. Each program has its own source, so what one program draws
// does not change what the others get.
func (w *World) numbers() *model.Random {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.random++
	return model.NewRandom(w.random)
}

func (w *World) say(format string, args ...any) {
	if w.cfg.Say != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cfg.Say("%9.3fs  %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// logs returns a context that passes a program's log lines to Say instead of printing them.
func (w *World) logs(ctx context.Context, program string) context.Context {
	if w.cfg.Say == nil {
		return klog.NewContext(ctx, logr.Discard())
	}
	return klog.NewContext(ctx, funcr.New(func(_, args string) { w.say("%s: %s", program, args) }, funcr.Options{Verbosity: 1}))
}

// began is the time at which every bubble of testing/synctest begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// New makes a world and starts everything in it.
func New(cfg Config) (*World, error) {
	w := &World{
		cfg: cfg, dir: cfg.Dir, random: cfg.Seed << 20, machines: map[string]*machine{},
	}
	w.net = network.New(rand.NewPCG(cfg.Seed, 1))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.net.Run(ctx)
	}()
	w.stop = append(w.stop, func() {
		cancel()
		<-done
	})
	var err error
	if w.ca, err = pki.Create(w.path("pki"), "ca", nil); err != nil {
		return nil, err
	}
	if w.hubs, err = pki.Create(w.path("hubs"), "ca", nil); err != nil {
		return nil, err
	}
	m, err := w.machine("cloud", "10.0.0.1")
	if err != nil {
		return nil, err
	}
	if err := w.newCloud(ctx, m); err != nil {
		return nil, err
	}
	w.judges = m.program("kube-controller-manager", func(ctx context.Context, _ *network.Process) error {
		wire := &model.Wire{Handler: w.cloud.gray, User: &user.DefaultInfo{Name: user.KubeControllerManager}}
		return stock.RunControllers(ctx, &rest.Config{Host: "http://" + m.ip, Transport: wire}, stock.DefaultJudgement())
	})
	w.judges.wired = true
	for i := range controls {
		if err := w.control(i); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Nodes {
		n, err := w.newNode(i + 1)
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, n)
	}
	for i := range steadyNodes {
		if err := w.steady(i + 1); err != nil {
			return nil, err
		}
	}
	if err := w.members(); err != nil {
		return nil, err
	}
	for _, n := range w.nodes[:cfg.Coordinators] {
		s, err := w.newServer(n.machine, "yurt-coordinator", "10270", coordinate)
		if err != nil {
			return nil, err
		}
		w.slots = append(w.slots, s)
	}
	for a := range w.machines {
		for b := range w.machines {
			if a != b {
				w.net.Set(a, b, w.usual(a, b))
			}
		}
	}
	if err := w.deploy(ctx); err != nil {
		return nil, err
	}
	if cfg.Readers {
		if err := w.watches(); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		w.startAll(w.machines[name])
	}
	return w, nil
}

// ownPool is the name of the nodes' pool, and kindNodePool the kind of its object.
const ownPool, kindNodePool = "p1", "NodePool"

// steadyNodes is how many nodes the other pool has, to which nothing happens.
const steadyNodes = 3

// stays is how many seconds a Pod of this world stays on a node that is not Ready or not reachable. Kubernetes' default is 5
// minutes. With less, more histories see the end of that time.
const stays = 60

// deploy creates what the cloud has from the start: namespaces, a NodePool, and one Pod for each node of the pool. The Pods have
// no controller, so an evicted Pod is not replaced.
func (w *World) deploy(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(w.client())
	if err != nil {
		return err
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease, readNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	pool, err := json.Marshal(map[string]any{
		"apiVersion": edge.NodePools.GroupVersion().String(), "kind": kindNodePool, "metadata": metav1.ObjectMeta{
			Name: ownPool, Annotations: map[string]string{edge.AnnotationHoldEvictions: w.cfg.Holds.String()},
		},
	})
	if err != nil {
		return err
	}
	if err := c.CoreV1().RESTClient().Post().AbsPath("/apis", edge.NodePools.Group, edge.NodePools.Version,
		edge.NodePools.Resource).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(pool).Do(ctx).Error(); err != nil {
		return err
	}
	for _, n := range w.nodes {
		seconds, until := int64(stays), []corev1.Toleration(nil)
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			until = append(until, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
		if _, err := c.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec: corev1.PodSpec{
				NodeName: n.name, Tolerations: until, Containers: []corev1.Container{{Name: "works", Image: "works"}},
			},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// node returns the node of the pool that has the name; nil means that there is none.
func (w *World) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// End ends all programs, and waits until they have ended.
func (w *World) End() {
	for _, m := range w.machines {
		m.resume()
		m.host.On()
	}
	servers := append(slices.Clone(w.slots), w.cloud, w.second)
	for _, m := range w.machines {
		for _, p := range m.inOrder() {
			if !slices.ContainsFunc(servers, func(s *server) bool { return s.program == p }) {
				p.kill()
			}
		}
	}
	for _, s := range servers {
		s.kill()
	}
	time.Sleep(time.Minute)
	for _, stop := range w.stop {
		stop()
	}
}

// client returns access to the cloud without a network, for the parts of the simulation that are not under test.
func (w *World) client() *rest.Config {
	return &rest.Config{Host: "http://cloud", Transport: &model.Wire{Handler: w.cloud.model.Load(), User: admin}, QPS: -1}
}

func (w *World) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func parsed(s string) net.IP { return net.ParseIP(s) }
