package world

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/sim/history"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
	"yurtcoordinator/internal/sim/stock"
)

// Cast returns the parts of this world that events of a history can be about.
func Cast(nodes, coordinators int) (c history.Cast) {
	c.Servers, c.Machines, c.Pool = []string{"cloud", second}, append([]string{"cloud"}, controls...), ownPool
	c.Programs, c.Paths = []string{"cloud/kube-controller-manager"}, [][2]string{{ownPool, "cloud"}}
	for _, m := range controls {
		c.Programs, c.Paths = append(c.Programs, m+"/"+controller), append(c.Paths, [2]string{m, "cloud"})
	}
	for i := range nodes {
		n := "n" + strconv.Itoa(i+1)
		c.Nodes, c.Machines = append(c.Nodes, n), append(c.Machines, n)
		c.Programs = append(c.Programs, n+"/hub", n+"/kubelet")
		c.Paths = append(c.Paths, [2]string{n, "cloud"}, [2]string{n, "cloud"}) // the WAN fails more often
		for j := range i {
			c.Paths = append(c.Paths, [2]string{n, "n" + strconv.Itoa(j+1)})
		}
		if i < coordinators {
			c.Servers = append(c.Servers, n)
			c.Programs = append(c.Programs, n+"/yurt-coordinator")
		}
	}
	return c
}

// Live lets a history happen. After that, nothing is harmed for the time rest. Live calls the function look at least once a
// second, and after each change.
func (w *World) Live(h history.History, rest time.Duration, look func()) {
	type change struct {
		at   time.Time
		does func()
	}
	var all []change
	began := time.Now()
	for i, e := range h.Events {
		begins := func() {
			w.say("%s", strings.TrimSpace(e.String()))
			w.harms = append(w.harms, happening{i, e})
			w.harm(e)
			if !lasts(e) {
				w.over(i)
				w.jolts++
			}
		}
		if e.Does == history.Restore {
			var backup model.Backup
			from := began.Add(max(0, e.At-time.Duration(e.Much*float64(time.Second))))
			all = append(all, change{from, func() { backup = w.cloud.store.Backup() }})
			begins = func() {
				w.say("%s", strings.TrimSpace(e.String()))
				w.cloud.store.Restore(backup)
				w.restored++
				w.anew()
			}
		}
		all = append(all, change{began.Add(e.At), begins})
		end := began.Add(h.Long)
		if e.For > 0 {
			end = began.Add(min(e.At+e.For, h.Long))
		}
		if lasts(e) {
			all = append(all, change{end, func() {
				w.say("over: %s", strings.TrimSpace(e.String()))
				w.over(i)
				w.mend(e)
			}})
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.at.Compare(b.at) })
	until := func(t time.Time) {
		for time.Now().Before(t) {
			look()
			time.Sleep(min(time.Second, time.Until(t)))
		}
	}
	for _, c := range all {
		until(c.at)
		c.does()
		look()
	}
	until(began.Add(h.Long + rest))
}

// anew restarts the cloud's controllers, as docs/backup.md tells those who restore the cloud's storage. A watch that is not
// restarted gets no events until the storage has written as much as it has lost.
func (w *World) anew() {
	all := []*program{w.judges}
	for _, m := range controls {
		all = append(all, w.machines[m].programs[controller])
	}
	for _, p := range all {
		if p.done != nil {
			p.stop()
			p.start()
		}
	}
}

// lasts reports whether an event goes on until it is mended.
func lasts(e history.Event) bool { return e.Does != history.Restore && e.Does != history.Compact }

// happening is an event that goes on, with its place in the history.
type happening struct {
	place int
	history.Event
}

func (w *World) over(place int) {
	w.harms = slices.DeleteFunc(w.harms, func(h happening) bool { return h.place == place })
}

// harmed returns the events that go on and for which about returns true, in the order in which they began.
func (w *World) harmed(about func(e history.Event) bool) (found []history.Event) {
	for _, h := range w.harms {
		if about(h.Event) {
			found = append(found, h.Event)
		}
	}
	return found
}

// harm begins an event.
func (w *World) harm(e history.Event) {
	switch e.Does {
	case history.Path, history.OneWay:
		w.paths(e)
	case history.Server:
		w.faults(e.On)
	case history.Compact:
		s := w.serverOf(e.On)
		s.store.Compact(s.store.Revision())
		s.model.Load().Restart()
	case history.Machine:
		for _, m := range w.at(e.On) {
			w.fail(m, e)
		}
	case history.Program:
		m := w.machines[strings.Split(e.On, "/")[0]]
		if p := m.programs[e.On[strings.Index(e.On, "/")+1:]]; e.How == "stopped" {
			p.stop()
		} else {
			p.kill()
		}
	case history.Clock:
		w.machines[e.On].step(time.Duration(e.Much * float64(time.Second)))
	}
}

// at returns the machines of a place, which is one machine or the pool.
func (w *World) at(place string) (all []*machine) {
	if place != ownPool {
		return []*machine{w.machines[place]}
	}
	for _, n := range w.nodes {
		all = append(all, n.machine)
	}
	return all
}

// within reports whether a machine is at a place.
func (w *World) within(place, machine string) bool {
	return place == machine || place == ownPool && w.node(machine) != nil
}

// fail suspends a machine, or takes its power.
func (w *World) fail(m *machine, e history.Event) {
	if suspends(e) {
		m.suspend()
		for _, p := range m.inOrder() {
			if p.wired {
				p.kill()
			}
		}
		return
	}
	m.host.Off()
	for _, p := range m.inOrder() {
		p.kill()
	}
	if n := w.node(m.name); n != nil {
		n.containers = &stock.Containers{}
	}
	if e.How == "blank" {
		w.wipe(m)
	}
}

// mend ends an event. What other events still harm stays harmed.
func (w *World) mend(e history.Event) {
	switch e.Does {
	case history.Path, history.OneWay:
		w.paths(e)
	case history.Server:
		w.faults(e.On)
	case history.Machine:
		for _, m := range w.at(e.On) {
			others := w.harmed(func(o history.Event) bool { return o.Does == history.Machine && w.within(o.On, m.name) })
			if !slices.ContainsFunc(others, suspends) {
				m.resume()
			}
			if !slices.ContainsFunc(others, func(o history.Event) bool { return !suspends(o) }) {
				m.host.On()
				w.startAll(m)
			}
		}
	case history.Program:
		w.startAll(w.machines[strings.Split(e.On, "/")[0]])
	case history.Clock:
		off := 0.0
		for _, o := range w.harmed(func(o history.Event) bool { return o.Does == history.Clock && o.On == e.On }) {
			off = o.Much
		}
		w.machines[e.On].step(time.Duration(off * float64(time.Second)))
	}
}

// suspends reports whether the machine continues where it stood once the event is over.
func suspends(e history.Event) bool { return e.How == "paused" || e.How == "suspended" }

// startAll starts those programs of a machine that no event keeps from running.
func (w *World) startAll(m *machine) {
	if w.powerless(m.name) {
		return
	}
	for _, p := range m.inOrder() {
		if !w.keptDown(m.name, p.name) && !(p.wired && len(w.harmed(func(e history.Event) bool {
			return e.Does == history.Machine && w.within(e.On, m.name) && suspends(e)
		})) > 0) {
			p.start()
		}
	}
}

func (w *World) powerless(machine string) bool {
	return len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Machine && w.within(e.On, machine) && (e.How == "dead" || e.How == "blank")
	})) > 0
}

func (w *World) keptDown(machine, program string) bool {
	return w.powerless(machine) || len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Program && e.On == machine+"/"+program
	})) > 0
}

func (m *machine) inOrder() (all []*program) {
	for _, p := range m.programs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *program) int { return -strings.Compare(a.name, b.name) })
	return all
}

// wipe empties a machine's disk, and then installs what a node has from its installation.
func (w *World) wipe(m *machine) {
	if err := os.RemoveAll(m.dir); err != nil {
		panic(err)
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		panic(err)
	}
	if n := w.node(m.name); n != nil {
		if err := n.install(); err != nil {
			panic(err)
		}
	}
}

// paths sets the paths between the two ends of an event to what all present events make of them. If two events set the same
// property of a path, the later event counts.
func (w *World) paths(e history.Event) {
	for _, on := range w.at(e.On) {
		for _, to := range w.at(e.To) {
			w.way(on.name, to.name)
			w.way(to.name, on.name)
		}
	}
}

// way does for one direction between two machines what paths does.
func (w *World) way(from, to string) {
	p := w.usual(from, to)
	for _, o := range w.harmed(func(o history.Event) bool {
		return (o.Does == history.Path || o.Does == history.OneWay) && w.within(o.On, from) && w.within(o.To, to) ||
			o.Does == history.Path && w.within(o.On, to) && w.within(o.To, from)
	}) {
		switch o.How {
		case "silent":
			p.Silent = true
		case "refused":
			p.Refuses = true
		case "half", "forgets":
			p.Forgets = max(time.Second, time.Duration(o.Much*float64(time.Second)))
		case "small":
			p.Most = int(o.Much)
		case "loss":
			p.Loss = o.Much
		case "thin":
			p.Rate, p.Queue = int(o.Much), 64<<10
		case "far":
			p.Delay = time.Duration(o.Much * float64(time.Second) / 2)
		}
	}
	w.net.Set(from, to, p)
}

// usual returns a path that nothing harms. A round trip between the cloud and a pool takes about 20 ms, any other less than 1 ms.
func (w *World) usual(from, to string) network.Path {
	if (from == "cloud" || to == "cloud") && !slices.Contains(controls, from) && !slices.Contains(controls, to) {
		return network.Path{Delay: 10 * time.Millisecond, Jitter: time.Millisecond}
	}
	return network.Path{Delay: 200 * time.Microsecond}
}

func (w *World) serverOf(name string) *server {
	for _, s := range w.slots {
		if s.machine.name == name {
			return s
		}
	}
	if name == second {
		return w.second
	}
	return w.cloud
}

// faults sets the faults of a server to what all present events make of it. An event of the cloud harms both of its servers.
func (w *World) faults(name string) {
	if name == "cloud" {
		w.faults(second)
	}
	var all []model.Fault
	for _, e := range w.harmed(func(e history.Event) bool {
		return e.Does == history.Server && (e.On == name || e.On == "cloud" && name == second)
	}) {
		f := model.Fault{}
		if e.To != "" {
			f.Path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + e.To
		}
		leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
		switch e.How {
		case "hang":
			f.Hang = true
		case "readonly":
			f.Hang, f.Writes = true, true
		case "etcd":
			f.Storage = true
		case "slow":
			f.Delay = time.Duration(e.Much) * 5 * time.Millisecond
		case "401":
			f.Refuse = apierrors.NewUnauthorized("Unauthorized")
		case "403":
			f.Refuse = apierrors.NewForbidden(leases, e.To, fmt.Errorf("no"))
		case "422":
			f.Refuse, f.Writes = apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, e.To, nil), true
		case "429":
			f.Refuse = apierrors.NewTooManyRequests("too many requests", int(e.Much))
		case "500":
			f.Refuse = apierrors.NewInternalError(fmt.Errorf("etcdserver: no leader"))
		case "503":
			unavailable := apierrors.NewServiceUnavailable("not ready")
			unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(e.Much)}
			f.Refuse = unavailable
		}
		all = append(all, f)
	}
	w.serverOf(name).gray.Set(all...)
	w.second.sick.Store(len(w.harmed(sickSecond)) > 0)
}
