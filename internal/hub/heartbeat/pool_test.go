package heartbeat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
)

// member is a whole node of a pool: kubelet, Proxy, Elector and Forwarder.
type member struct {
	*node
	keeper  *lead.Elector
	dead    atomic.Bool
	silent  atomic.Bool // its kubelet sends nothing
	restart atomic.Bool // its hub is to be restarted
}

// story is a pool with its history, watched over: each write to the cloud is checked as it is done.
type story struct {
	t                  *testing.T
	cloud, coordinator *hubtest.LeaseServer
	members            []*member

	mu       sync.Mutex
	told     []string
	stored   map[string]time.Time // when a stamp of a node reached the coordinator, marked, by "node stamp"
	newest   map[string]time.Time // when a node's last new stamp did
	latest   map[string]time.Time // the latest stamp that the cloud has had of a node
	counted  map[string]time.Time // when it last advanced: what kube-controller-manager counts as a heartbeat
	forwards int
	moved    int // of them, with a stamp that had to be moved on
}

func stampOf(c hubtest.LeaseCall) string {
	return fmt.Sprintf("%s %d", c.Name, c.Lease.Spec.RenewTime.UnixMicro())
}

// watchOver checks invariant 2: whatever another hub writes for a node is a stamp of that node's kubelet, written within the
// bound after the coordinator got it. If the stamp is not later than the cloud's, the hub writes the cloud's plus a
// microsecond; then a stamp of kubelet's must have reached the coordinator within that time.
func (s *story) watchOver() {
	s.coordinator.Witness(func(c hubtest.LeaseCall) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.Namespace != space || c.Lease == nil {
			return
		}
		if marked, _ := delegatedLease(c.Lease); !marked {
			return
		}
		if _, ok := s.stored[stampOf(c)]; !ok {
			s.stored[stampOf(c)], s.newest[c.Name] = time.Now(), time.Now()
		}
	})
	s.cloud.Witness(func(c hubtest.LeaseCall) {
		if c.Lease == nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		before := s.latest[c.Name]
		if stamp := renewTime(c.Lease); stamp.After(before) {
			s.latest[c.Name], s.counted[c.Name] = stamp, time.Now()
		}
		annotation, label := delegatedLease(c.Lease)
		_, host := c.Lease.Annotations[edge.AnnotationCoordinatorHost]
		_, note := c.Lease.Annotations[AnnotationCloudLease]
		_, traffic := c.Lease.Annotations[edge.AnnotationTraffic]
		_, kubelet := c.Lease.Annotations[edge.AnnotationKubelet]
		_, line := c.Lease.Annotations[edge.AnnotationLine]
		_, hub := c.Lease.Annotations[edge.AnnotationHub]
		_, relays := c.Lease.Annotations[edge.AnnotationRelaysAt]
		if label || host || note || traffic || kubelet || line || hub || relays {
			s.t.Errorf("%s by %s brought a mark that is not for the cloud: %v", c, c.Client, c.Lease.ObjectMeta)
		}
		if !annotation {
			return
		}
		s.forwards++
		at, ok := s.stored[stampOf(c)]
		if !ok && renewTime(c.Lease).Equal(before.Add(time.Microsecond)) {
			at, ok = s.newest[c.Name]
			s.moved++
		}
		if !ok {
			s.t.Errorf("%s wrote a stamp of %s that its kubelet never gave", c.Client, c.Name)
		} else if age := time.Since(at); age > maxAge+transit {
			s.t.Errorf("%s renewed %s %s after its heartbeat reached the coordinator; after:\n%s",
				c.Client, c.Name, age,
				strings.Join(s.told, "\n"))
		}
	})
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *story) start(name string) (stop func()) {
	m := &member{node: newNode(s.t, name, s.cloud, s.coordinator)}
	m.relaysAt = "10.0.0.1:10269"
	forwarder := NewForwarder(ForwarderConfig{Node: edge.NodeName(name), Cloud: s.cloud.Client(name)})
	state := told(s.t, s.coordinator, name)
	from := Source{Told: state}
	m.keeper = lead.NewElector(lead.ElectorConfig{
		Node: edge.NodeName(name), Cloud: m.cloudLink, Coordinator: m.coordinatorLink,
		Leases: s.coordinator.Client(name), Seen: state.Election(),
		Lead: func(ctx context.Context, term edge.Term) error { return forwarder.Run(ctx, from, term) },
	})
	s.members = append(s.members, m)
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), ktesting.NewLogger(s.t, ktesting.NewConfig())))
	kept, kubelet := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		if err := m.keeper.Run(ctx); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}()
	m.register()
	go func() {
		defer close(kubelet)
		m.kubelet(ctx)
	}()
	return func() {
		s.cloud.Heal(name)
		s.coordinator.Heal(name)
		cancel()
		<-kept
		<-kubelet
		m.stop()
	}
}

// kubelet renews every 10 s; after a conflict it looks and tries once more, after any other failure it just goes on.
func (m *member) kubelet(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10*time.Second + rand.N(400*time.Millisecond)):
		}
		if m.restart.CompareAndSwap(true, false) {
			m.restartHub()
		}
		if m.silent.Load() {
			continue
		}
		if m.beat() != nil {
			if got, err := m.do(http.MethodGet, nil, "?timeout=10s"); err == nil {
				m.lease = got
				_ = m.beat()
			}
		}
	}
}

// later sets a link's state after the time that it takes to notice.
func (s *story) later(d time.Duration, do func()) { time.AfterFunc(d, do) }

// TestPoolThroughAnything generates random sequences of cuts, deaths, pauses and restarts. Throughout, a dead node's Lease is
// never renewed late (watchOver). In the end, with one node's WAN up, every live node is renewed and no dead one is.
func TestPoolThroughAnything(t *testing.T) {
	forwards, moved := 0, 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &story{
					t: t, cloud: hubtest.NewLeaseServer(5000), coordinator: hubtest.NewLeaseServer(10),
					stored: map[string]time.Time{},
					newest: map[string]time.Time{}, latest: map[string]time.Time{}, counted: map[string]time.Time{},
				}
				s.watchOver()
				for i := range 5 {
					defer s.start(fmt.Sprintf("n%d", i))()
				}
				time.Sleep(20 * time.Second)
				r := rand.New(rand.NewPCG(seed, 4))
				for range 40 {
					s.happen(r)
					time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
				}
				s.end()
				forwards += s.forwards
				moved += s.moved
			})
		})
	}
	t.Logf("%d heartbeats were forwarded in all, %d of them with a stamp moved on", forwards, moved)
	if moved < 100 {
		t.Errorf("only %d stamps were moved on in all: the histories are too tame to show anything", moved)
	}
	if forwards < 1000 {
		t.Errorf("only %d heartbeats were forwarded in all: the histories are too tame to show anything", forwards)
	}
}

func (s *story) happen(r *rand.Rand) {
	m := s.members[r.IntN(len(s.members))]
	switch r.IntN(13) {
	case 0, 1, 2:
		s.tell("%s loses its WAN", m.name)
		s.cut(m)
	case 3:
		s.tell("%s has its WAN again", m.name)
		s.heal(m)
	case 4:
		s.tell("%s is paused", m.name)
		s.cloud.Cut(m.name)
		s.coordinator.Cut(m.name)
		m.silent.Store(true)
		d := time.Duration(r.IntN(70)) * time.Second
		s.later(d, func() {
			if m.dead.Load() {
				return
			}
			s.coordinator.Heal(m.name)
			if m.cloudLink.Get() == link.Up {
				s.cloud.Heal(m.name)
			}
			m.silent.Store(false)
		})
	case 5:
		if r.IntN(3) == 0 {
			s.tell("%s dies", m.name)
			m.dead.Store(true)
			m.silent.Store(true)
			s.cloud.Cut(m.name)
			s.coordinator.Cut(m.name)
		}
	case 6:
		s.tell("the coordinator comes back empty")
		s.coordinator.Restart(uint64(r.IntN(500)) + 1)
	case 7:
		s.tell("watches break")
		s.coordinator.Break()
	case 8:
		s.tell("history is compacted")
		s.coordinator.Compact()
	case 9:
		s.tell("events stall")
		s.coordinator.Hold()
		s.later(time.Duration(r.IntN(60))*time.Second, s.coordinator.Flow)
	case 10:
		s.tell("the hub of %s restarts", m.name)
		m.restart.Store(true)
	case 11:
		d := time.Duration(r.IntN(7200)-3600) * time.Second
		s.tell("the clock of %s is %s ahead", m.name, d)
		m.clock.Store(int64(d))
	case 12:
		if r.IntN(4) == 0 {
			s.tell("a thief writes a stamp from years ahead for %s", m.name)
			s.poison(m)
		}
	}
}

// poison is what one node can do to another's Lease in the cloud, as the pool's forwarder.
func (s *story) poison(m *member) {
	l := s.cloud.Edit(space, m.name, func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if stamp := renewTime(l); stamp.After(s.latest[m.name]) {
		s.latest[m.name] = stamp
	}
}

func (s *story) cut(m *member) {
	s.cloud.Cut(m.name)
	s.later(3*time.Second, func() { m.cloudLink.Set(link.Down) })
}

func (s *story) heal(m *member) {
	s.later(4*time.Second, func() {
		if m.dead.Load() {
			return
		}
		s.cloud.Heal(m.name)
		m.cloudLink.Set(link.Up)
	})
}

// end leaves one live node its WAN and cuts all others, and looks at who is renewed.
func (s *story) end() {
	time.Sleep(90 * time.Second) // by now everything has arrived
	alive := 0
	for _, m := range s.members {
		switch {
		case m.dead.Load():
			// Its hub runs on here as a ghost that reaches nobody.
		case alive == 0:
			alive++
			s.heal(m)
			s.tell("%s keeps its WAN", m.name)
		default:
			alive++
			s.cut(m)
		}
	}
	if alive == 0 {
		return
	}
	time.Sleep(60 * time.Second)
	synctest.Wait()
	for _, m := range s.members {
		s.mu.Lock()
		age := time.Since(s.counted[m.name])
		s.mu.Unlock()
		switch {
		case m.dead.Load() && age < time.Minute:
			s.t.Errorf("%s is dead, and was renewed %s ago", m.name, age)
		case !m.dead.Load() && age > 25*time.Second:
			s.t.Errorf("%s lives, and was renewed %s ago; after:\n%s", m.name, age, strings.Join(s.told, "\n"))
		}
	}
}
