package cloud

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var storesScenarios = []kit.Scenario{{
	Name: "two-stores", Run: twoStores,
	Lab: kit.Unrelayed(lab.Config{
		Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow, NoProxy: true, EventsApart: true, AuditAll: true,
	}),
	Doc: "The cloud keeps Events in an etcd of their own, whose revisions are first below all others and then above them. A " +
		"node is cut off, its hub restarts, and both etcds forget their history. Programs that follow Events and ConfigMaps " +
		"are told exactly what happens, hubs list as often as with one etcd, and none says that the history has changed.",
}}

// storeObjects is how many Events, and how many ConfigMaps, are changed.
const storeObjects = 10

// Collections of either store.
var (
	allEvents     = kit.Collection{Name: "events", Resource: "events", Path: "/api/v1/events"}
	allConfigMaps = kit.Collection{Name: "configmaps", Resource: "configmaps", Path: "/api/v1/configmaps"}
)

// stores is a run of two-stores.
type stores struct {
	*kit.T
	audiences []*kit.Audience
	// paths are those of the objects that change.
	paths []string
	// expired is how often the clients on a node may have been told 410.
	expired map[string]int
}

func twoStores(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	s := &stores{T: t, expired: map[string]int{}}
	s.furnish()
	for _, c := range []kit.Collection{allEvents, allConfigMaps} {
		a := t.Record(c)
		a.SeatGuest(t, t.Pool.Nodes())
		s.audiences = append(s.audiences, a)
	}
	t.Say("the Events are at revision %d, all else is at %d", s.revision("events"), s.revision("configmaps"))
	if s.revision("events") >= s.revision("configmaps") {
		t.Fail("the Events' revisions are not below the others: this shows nothing")
	}
	s.resumed(node)
	s.forgotten(node)
	s.overtake()
	s.caughtUp()
	s.resumed(node)
	s.forgotten(node)
	for _, a := range s.audiences {
		a.Judge(t, s.expired)
	}
	s.oneHistory()
}

// resumed cuts a node off for a while, and then restarts its hub. Nothing is listed again.
func (s *stores) resumed(node string) {
	before := s.lists()
	stop := s.Patching(s.paths...)
	s.Cut(node)
	s.Hold(20*time.Second, node+" is cut off")
	s.Heal(node)
	s.caughtUp()
	s.Must(s.Lab.Node(s.Ctx, lab.Restart, node, lab.Hub))
	s.expired[node]++
	s.Pool.Settled(30 * time.Second)
	s.Hold(5*time.Second, "the cloud changes")
	stop()
	s.caughtUp()
	for resource, n := range s.lists() {
		if n -= before[resource]; n > 0 {
			s.Fail("%s were listed again %d times after a cut and a restart of a hub", resource, n)
		}
	}
}

// forgotten makes both etcds forget their history while a node is cut off. Each hub lists what it follows once at most.
func (s *stores) forgotten(node string) {
	before := s.lists()
	s.Cut(node)
	s.Pool.NoticesCut(node)
	stop := s.Patching(s.paths...)
	s.Hold(5*time.Second, "the cloud changes")
	stop()
	revision, err := s.Lab.Compact(s.Ctx)
	s.Must(err)
	s.Say("the cloud has forgotten what was before revision %s", revision)
	s.Must(s.Lab.Cloud(s.Ctx, lab.Restart, lab.KubeAPIServer))
	s.Heal(node)
	for _, n := range s.Pool.Nodes() {
		s.expired[n]++
	}
	s.caughtUp()
	stop = s.Patching(s.paths...)
	s.Hold(30*time.Second, "time to list again and again")
	stop()
	s.caughtUp()
	for resource, n := range s.lists() {
		n -= before[resource]
		s.Figure("lists_of_"+resource+"_after_forgetting", float64(n))
		if n > len(s.Pool.Nodes()) {
			s.Fail("%d hubs have listed %s %d times, want once each at most", len(s.Pool.Nodes()), resource, n)
		}
	}
}

// oneHistory expects that no hub says that the history has changed.
func (s *stores) oneHistory() {
	for _, node := range s.Pool.Nodes() {
		path, err := s.Lab.Log(node, string(lab.Hub))
		s.Must(err)
		log, err := os.ReadFile(path)
		s.Must(err)
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "history has changed") || strings.Contains(line, "history was set back") {
				s.Fail("the hub of %s says: %s", node, line)
			}
		}
	}
}

// furnish makes the objects that change.
func (s *stores) furnish() {
	for i := range storeObjects {
		name := fmt.Sprintf("stored-%d", i)
		_, err := s.Cloud.CoreV1().Events(kit.Namespace).Create(s.Ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: kit.Namespace, Name: name},
			Reason:         "Stored", Message: name, Type: corev1.EventTypeNormal,
		}, metav1.CreateOptions{})
		s.Must(err)
		_, err = s.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(s.Ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		s.Must(err)
		for _, resource := range []string{"events", "configmaps"} {
			s.paths = append(s.paths, "/api/v1/namespaces/"+kit.Namespace+"/"+resource+"/"+name)
		}
	}
}

// overtake changes an Event until the Events' revisions are above all others.
func (s *stores) overtake() {
	behind := s.revision("configmaps") - s.revision("events")
	var all errgroup.Group
	all.SetLimit(8)
	for i := range behind + 500 {
		all.Go(func() error {
			body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/value":"%d"}}}`, i)
			return s.Cloud.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(s.paths[0]).Body(body).Do(s.Ctx).Error()
		})
	}
	s.Must(all.Wait())
	s.Say("the Events are at revision %d, all else is at %d", s.revision("events"), s.revision("configmaps"))
	if s.revision("events") <= s.revision("configmaps") {
		s.Fail("the Events' revisions are not above the others: this shows nothing")
	}
}

// revision returns the present revision of a resource's store.
func (s *stores) revision(resource string) uint64 {
	all := s.Cloud.Objects.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	list, err := all.List(s.Ctx, metav1.ListOptions{Limit: 1})
	s.Must(err)
	revision, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	s.Must(err)
	return revision
}

// lists returns how often hubs have listed Events and ConfigMaps for the guests.
func (s *stores) lists() map[string]int {
	n := map[string]int{}
	for _, a := range s.audiences {
		all, err := s.Lab.CloudLists(s.Ctx, a.Resource)
		s.Must(err)
		n[a.Resource] = 0
		for _, l := range all {
			if l.User == "admin" && strings.HasPrefix(l.Agent, "yurthub") {
				n[a.Resource]++
			}
		}
		s.Say("%s were listed %d times for guests", a.Resource, n[a.Resource])
	}
	return n
}

func (s *stores) caughtUp() {
	for _, a := range s.audiences {
		a.CaughtUp(s.T, 60*time.Second)
	}
}
