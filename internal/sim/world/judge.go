package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/sim/history"
)

// Bounds of the oracle: SIMULATION §4.
const (
	// oldest is how old a living node's Lease may be, and for how long one route must have been whole for that:
	// node-monitor-grace-period, 50 s, less one heartbeat.
	oldest = 40 * time.Second
	// aged is after how long since its last copy was stored a dead node may be renewed no more.
	aged = 12 * time.Second
	// travels is how long that write may be on its way: an unharmed path takes 10 ms, and Look comes once a second.
	travels = 2 * time.Second
)

// Judge is the oracle: from what the world did it knows what must be seen at the cloud, and from nothing else.
type Judge struct {
	w      *World
	cloud  kubernetes.Interface
	whole  map[string]time.Time // by route: since when nothing of it is harmed
	lived  map[string]time.Time // by node: since when kubelet and hub run
	alive  map[string]time.Time // … and when that was so last
	leases map[string]seen
	// Breaches are what was promised and not kept, one a clause and node.
	Breaches []string
	told     map[string]bool
}

// seen is a node's Lease at the cloud.
type seen struct {
	version string
	at      time.Time // when it changed
}

// NewJudge returns a Judge that has seen nothing.
func (w *World) NewJudge() (*Judge, error) {
	c, err := kubernetes.NewForConfig(w.client(w.cloud))
	return &Judge{
		w: w, cloud: c, whole: map[string]time.Time{}, lived: map[string]time.Time{}, alive: map[string]time.Time{},
		leases: map[string]seen{}, told: map[string]bool{},
	}, err
}

// runs reports whether a program of a machine runs, and can do something.
func (w *World) runs(machine, program string) bool {
	return !w.keptDown(machine, program) && len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Machine && e.On == machine
	})) == 0
}

// open reports whether nothing harms what is between two machines.
func (w *World) open(a, b string) bool {
	return a == b || len(w.harmed(func(e history.Event) bool {
		return (e.Does == history.Path || e.Does == history.OneWay) && (e.On == a && e.To == b || e.On == b && e.To == a)
	})) == 0
}

// serves reports whether a server does all it should for a node.
func (w *World) serves(server, node string) bool {
	program := "yurt-coordinator"
	if server == "cloud" {
		program = "kube-apiserver"
	}
	return w.runs(server, program) && len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Server && e.On == server && (e.To == "" || e.To == node)
	})) == 0
}

// line reports whether a node's own line is whole.
func (w *World) line(node string) bool {
	return w.runs(node, "hub") && w.open(node, "cloud") && w.serves("cloud", node)
}

// routes returns the node's routes that are whole now.
func (w *World) routes(node string) (all []string) {
	if !w.runs(node, "hub") {
		return nil
	}
	if w.line(node) {
		all = append(all, "own line")
	}
	for _, s := range w.slots {
		at := s.machine.name
		if !w.serves(at, node) || !w.open(node, at) {
			continue
		}
		for _, n := range w.nodes {
			if n.name != node && w.line(n.name) && w.open(n.name, at) && w.serves(at, n.name) && w.serves("cloud", node) {
				all = append(all, "coordinator of "+at+", hub of "+n.name)
			}
		}
	}
	return all
}

// Look judges what is now.
func (j *Judge) Look() {
	now := time.Now()
	list, err := j.cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		j.breach("oracle", "", "%v", err)
		return
	}
	leases := map[string]*coordinationv1.Lease{}
	for i := range list.Items {
		l := &list.Items[i]
		leases[l.Name] = l
		if was := j.leases[l.Name]; was.version != l.ResourceVersion {
			j.leases[l.Name] = seen{l.ResourceVersion, now}
		}
	}
	for _, n := range j.w.nodes {
		j.node(n.name, now)
	}
}

func (j *Judge) node(name string, now time.Time) {
	if up := j.w.runs(name, "hub") && j.w.runs(name, "kubelet"); !up {
		delete(j.lived, name)
	} else {
		if _, ok := j.lived[name]; !ok {
			j.lived[name] = now
		}
	}
	if j.w.runs(name, "kubelet") {
		j.alive[name] = now
	}
	whole := map[string]bool{}
	for _, r := range j.w.routes(name) {
		whole[name+" "+r] = true
	}
	for r := range whole {
		if j.whole[r].IsZero() {
			j.whole[r] = now
		}
	}
	best, since := "", now
	for _, r := range slices.Sorted(maps.Keys(j.whole)) {
		if len(r) <= len(name) || r[:len(name)+1] != name+" " {
			continue
		}
		if !whole[r] {
			delete(j.whole, r)
		} else if j.whole[r].Before(since) {
			best, since = r, j.whole[r]
		}
	}
	lease := j.leases[name]
	age := now.Sub(lease.at)
	if lived, ok := j.lived[name]; ok && best != "" && now.Sub(later(lived, since)) > oldest && age > oldest {
		j.breach("alive", name, "its Lease is %v old; %s: whole for %v", age, best, now.Sub(since))
	}
	if last := j.alive[name]; !last.IsZero() && lease.at.After(last.Add(aged+travels)) {
		j.breach("dead", name, "its Lease was renewed %v after its kubelet had ended", lease.at.Sub(last))
	}
}

func (j *Judge) breach(clause, node, format string, args ...any) {
	if key := clause + " " + node; !j.told[key] {
		j.told[key] = true
		text := fmt.Sprintf("%s: %s: %s", clause, node, fmt.Sprintf(format, args...))
		j.Breaches = append(j.Breaches, text)
		j.w.say("BREACH %s", text)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
