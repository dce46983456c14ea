package lead

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
)

// looked is a list of Leases: each node with its version.
type looked map[string]int

func (l looked) leases() []coordinationv1.Lease {
	var all []coordinationv1.Lease
	for name, version := range l {
		all = append(all, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(version)},
			Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](40)},
		})
	}
	return all
}

// book is a State that is told of heartbeats.
type book struct{ *State }

func newBook() book { return book{NewState(StateConfig{})} }

// observe has a coordinator tell of all heartbeats.
func (b book) observe(leases []coordinationv1.Lease) {
	b.receive(edge.State{Heartbeats: &edge.Leases{Whole: true, Leases: leases}})
}

func (b book) reached() (report, bool) {
	all, since := b.Beats()
	return reached(all, since, time.Now())
}

func TestBeats(t *testing.T) {
	type look struct {
		after time.Duration // since the look before
		seen  looked
		want  []edge.NodeName // nil: too early to tell
	}
	none := []edge.NodeName{}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"what is found says nothing", []look{
			{0, looked{"a": 1, "b": 1}, nil},
			{5 * time.Second, looked{"a": 1, "b": 1}, nil},
			{36 * time.Second, looked{"a": 1, "b": 1}, none},
		}},
		{"all renew", []look{
			{0, looked{"a": 1, "b": 1}, nil},
			{5 * time.Second, looked{"a": 2, "b": 1}, nil},
			{5 * time.Second, looked{"a": 2, "b": 2}, []edge.NodeName{"a", "b"}},
		}},
		{"one does not", []look{
			{0, looked{"a": 1, "b": 1}, nil},
			{35 * time.Second, looked{"a": 2, "b": 1}, nil},
			{6 * time.Second, looked{"a": 2, "b": 1}, []edge.NodeName{"a"}},
			{5 * time.Second, looked{"a": 2, "b": 2}, []edge.NodeName{"a", "b"}},
			{40 * time.Second, looked{"a": 3, "b": 2}, []edge.NodeName{"a", "b"}},
			{time.Second, looked{"a": 3, "b": 2}, []edge.NodeName{"a"}},
		}},
		{"one comes and goes", []look{
			{0, looked{"a": 1}, nil},
			{5 * time.Second, looked{"a": 2, "b": 1}, []edge.NodeName{"a", "b"}},
			{5 * time.Second, looked{"a": 2}, []edge.NodeName{"a"}},
		}},
		{"nobody", []look{{0, looked{}, none}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newBook()
				if _, ok := l.reached(); ok {
					t.Error("something is known before the first look")
				}
				for i, look := range tc.looks {
					time.Sleep(look.after)
					l.observe(look.seen.leases())
					got, ok := l.reached()
					if ok != (look.want != nil) || ok && !slices.Equal(got.nodes, look.want) {
						t.Errorf("look %d: %v, %t, want %v", i, got.nodes, ok, look.want)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		lease := looked{"a": 1}.leases()
		lease[0].Spec.LeaseDurationSeconds = ptr.To[int32](1 << 30)
		l := newBook()
		l.observe(lease)
		time.Sleep(time.Hour)
		if _, ok := l.reached(); !ok {
			t.Error("a Lease that is said to last for years is waited for")
		}
	})
}

// TestALiarsLeasesHaveABound: a coordinator that tells of ever more nodes, or of large Leases, does not fill the hub's memory.
func TestALiarsLeasesHaveABound(t *testing.T) {
	lease := func(name string, bytes int) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: "1", Annotations: map[string]string{"a": strings.Repeat("x", bytes)},
		}}
	}
	l := newBook()
	l.observe([]coordinationv1.Lease{lease("large", maxBeat), lease("n1", maxBeat/2)})
	for i := range 2 * maxBeats {
		l.receive(edge.State{Heartbeats: &edge.Leases{Leases: []coordinationv1.Lease{lease(fmt.Sprintf("more-%d", i), 0)}}})
	}
	l.receive(edge.State{Heartbeats: &edge.Leases{Leases: []coordinationv1.Lease{lease("n1", 0)}}})
	all, _ := l.Beats()
	at := slices.IndexFunc(all, func(h Heartbeat) bool { return h.Lease.Name == "n1" })
	if len(all) != maxBeats || at < 0 || all[at].Lease.Annotations["a"] != "" ||
		slices.ContainsFunc(all, func(h Heartbeat) bool { return h.Lease.Name == "large" }) {
		t.Errorf("%d Leases are kept, n1 is the %d-th of them", len(all), at)
	}
}

// A change that is seen counts at once, even of a Lease that the baseline lacked; a deleted Lease is not missed.
func TestBeatsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBook()
		l.observe(looked{"a": 1, "b": 1}.leases())
		is := func(want ...edge.NodeName) {
			t.Helper()
			if got, ok := l.reached(); ok != (len(want) > 0) || ok && !slices.Equal(got.nodes, want) {
				t.Errorf("%v, %t, want %v", got.nodes, ok, want)
			}
		}
		change := func(name string, version int) {
			time.Sleep(time.Second)
			l.receive(edge.State{Heartbeats: &edge.Leases{Leases: looked{name: version}.leases()}})
		}
		change("a", 2)
		is()
		change("c", 3)
		is()
		change("b", 4)
		is("a", "b", "c")
		time.Sleep(time.Second)
		l.observe(looked{"a": 2, "c": 3}.leases()) // told anew, after one was deleted
		is("a", "c")
		time.Sleep(39 * time.Second)
		l.observe(looked{"a": 2, "c": 6}.leases()) // told anew, by another process
		is("c")
		l.receive(edge.State{}) // it leads no more
		is()
	})
}

// TestHears: a renewal that was seen is news for a while, as long as this hub leads, and whatever else a coordinator tells.
func TestHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBook()
		is := func(want bool) {
			t.Helper()
			if got := l.Hears("a", 15*time.Second); got != want {
				t.Errorf("it hears the node: %t", got)
			}
		}
		is(false)
		l.observe(looked{"a": 1}.leases())
		is(false)
		l.observe(looked{"a": 2}.leases())
		is(true)
		for i := range 2 * maxBeats {
			l.receive(edge.State{Heartbeats: &edge.Leases{Leases: looked{"invented-" + strconv.Itoa(i): 1}.leases()}})
		}
		is(true)
		time.Sleep(15 * time.Second)
		is(false)
		l.receive(edge.State{Heartbeats: &edge.Leases{Leases: looked{"a": 3}.leases()}})
		is(true)
		if n := len(l.heartbeats); n > maxBeats {
			t.Errorf("%d nodes are remembered", n)
		}
		l.receive(edge.State{}) // it leads no more
		is(false)
	})
}

func TestBeatsOfTraffic(t *testing.T) {
	leases := looked{"a": 1, "b": 1, "c": 1}.leases()
	for i := range leases {
		leases[i].Annotations = map[string]string{edge.AnnotationTraffic: leases[i].Name + "/1/2"}
		if leases[i].Name == "a" {
			leases[i].Annotations[edge.AnnotationTraffic] = "1/2/3"
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := newBook()
		l.observe(leases[:0])
		l.receive(edge.State{Heartbeats: &edge.Leases{Leases: leases}})
		want := map[edge.NodeName]edge.Traffic{"a": {Sent: 1, Received: 2, Since: time.Unix(3, 0)}}
		if got, _ := l.reached(); len(got.nodes) != 3 || !maps.Equal(got.traffic, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestBeatsOfLines: only who renews, and has a link of its own, is said to have a line.
func TestBeatsOfLines(t *testing.T) {
	say := func(version int) []coordinationv1.Lease {
		leases := looked{"a": version, "b": version, "c": version, "d": 1, "e": version}.leases()
		for i := range leases {
			leases[i].Annotations = map[string]string{edge.AnnotationLine: "12/3/0/free"}
			switch leases[i].Name {
			case "b":
				leases[i].Annotations[edge.DelegateHeartbeat] = edge.DelegateHeartbeatOn
			case "c":
				leases[i].Annotations[edge.AnnotationLine] = "fast"
			case "e":
				leases[i].Annotations = nil
			}
		}
		return leases
	}
	synctest.Test(t, func(t *testing.T) {
		l := newBook()
		lines := func() map[edge.NodeName]edge.Line {
			said, _ := l.reached()
			return said.lines
		}
		l.observe(say(1))
		if got := lines(); len(got) != 0 {
			t.Errorf("what was found says %v", got)
		}
		time.Sleep(10 * time.Second)
		l.observe(say(2))
		time.Sleep(10 * time.Second)
		want := map[edge.NodeName]edge.Line{"a": {Answer: 12 * time.Millisecond, Spread: 3 * time.Millisecond}}
		if got := lines(); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		time.Sleep(31 * time.Second)
		if got := lines(); len(got) != 0 {
			t.Errorf("who renews no longer says %v", got)
		}
	})
}

// TestRetries: a write that failed once is repeated within seconds; a cloud that fails for long is asked once a minute.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, cloud := hubtest.NewLeaseServer(10), fake.NewClientset()
		tries, fails := 0, 1
		cloud.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			if tries <= fails {
				return true, nil, errors.New("not now")
			}
			return true, &coordinationv1.Lease{}, nil
		})
		r := NewReporter(ReporterConfig{Node: "a", Pool: "p1", Cloud: cloud.CoordinationV1()})
		var term atomic.Bool
		term.Store(true)
		beats := follow(t, pool).Beats
		run := func(lasts time.Duration) {
			t.Helper()
			tries = 0
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			if err := r.Run(ctx, Source{Beats: beats}, edge.Term{Transitions: 1, Valid: term.Load}); err != nil {
				t.Error(err)
			}
		}
		if run(2 * reportEvery); tries != 2 {
			t.Errorf("%d tries, want the second soon after the first has failed", tries)
		}
		fails = 1000
		if run(time.Hour); tries < 30 || tries > 70 {
			t.Errorf("%d tries in an hour of failures, want about one a minute", tries)
		}
	})
}

// TestHowOftenAReportIsRepeated: as often as the link allows, and never later than the cloud was told to expect it.
func TestHowOftenAReportIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, cloud := hubtest.NewLeaseServer(10), fake.NewClientset()
		type write struct {
			at    time.Time
			lasts time.Duration
		}
		var writes []write
		cloud.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
			fields := lease.ManagedFields
			if len(writes) > 0 && (len(fields) != 1 || fields[0] != (metav1.ManagedFieldsEntry{})) {
				t.Errorf("a report brought managed fields %v, want an empty entry, which drops them", fields)
			}
			lease.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "yurthub"}}
			writes = append(writes, write{time.Now(), time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second})
			return true, lease, nil
		})
		var every atomic.Int64
		every.Store(int64(5 * time.Minute))
		r := NewReporter(ReporterConfig{
			Node: "a", Pool: "p1", Cloud: cloud.CoordinationV1(),
			Every: func() time.Duration { return time.Duration(every.Load()) },
		})
		var term atomic.Bool
		term.Store(true)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour+time.Second)
		defer stop()
		ended := make(chan error)
		beats := follow(t, pool).Beats
		go func() {
			ended <- r.Run(ctx, Source{Beats: beats}, edge.Term{Transitions: 1, Valid: term.Load})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(writes); n < 11 || n > 13 || writes[n-1].lasts != 10*time.Minute {
			t.Errorf("%d writes in an hour, the last valid for %v; want 12, for 10 minutes", n, writes[n-1].lasts)
		}
		every.Store(int64(time.Minute))
		time.Sleep(30 * time.Minute)
		every.Store(int64(5 * time.Minute))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(writes); n < 40 {
			t.Errorf("%d writes in two hours, for half an hour of which they were each minute", n)
		}
		for i, w := range writes[1:] {
			if was := writes[i]; w.at.Sub(was.at) > was.lasts/2+reportEvery {
				t.Errorf("a report that was said to last for %v was repeated after %v", was.lasts, w.at.Sub(was.at))
			}
		}
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, cloud := hubtest.NewLeaseServer(10), fake.NewClientset()
		kubelet := "unapproved"
		versions := map[string]string{"a": "v0.2.0", "b": "v0.2.0", "c": "newest, says <script>"}
		renew := func(names ...string) {
			for _, name := range names {
				says := map[string]string{
					edge.AnnotationTraffic: edge.Traffic{Sent: 1, Since: time.Now()}.String(), edge.AnnotationKubelet: kubelet,
					edge.AnnotationHubVersion: versions[name],
					edge.AnnotationHub:        edge.HubReport{Link: "up", Settings: 4}.String(),
				}
				if pool.Peek(corev1.NamespaceNodeLease, name) == nil {
					lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
						Namespace: corev1.NamespaceNodeLease, Name: name, Annotations: says,
					}}
					leases := pool.Leases(corev1.NamespaceNodeLease)
					if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				pool.Edit(corev1.NamespaceNodeLease, name, func(l *coordinationv1.Lease) { l.Annotations = says })
			}
		}
		reports := cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if _, err := reports.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "yurt-coordinator-p1", Annotations: map[string]string{
				edge.PrefixReports + "new": "by a leader of a later release", "example.org/own": "somebody's",
			}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		requests := func(verb string) (n int) {
			for _, a := range cloud.Actions() {
				if a.GetVerb() == verb {
					n++
				}
			}
			return n
		}
		writes := func() int { return requests("update") }
		looks := 0 // the test's own
		said := func() string {
			looks++
			lease, err := reports.Get(t.Context(), "yurt-coordinator-p1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			nodes := edge.SplitNodes(lease.Annotations[edge.AnnotationReachedNodes])
			told := edge.SplitTraffic(lease.Annotations[edge.AnnotationTraffic])
			if !slices.Equal(slices.Sorted(maps.Keys(told)), nodes) {
				t.Errorf("the traffic of %v, want that of %v", told, nodes)
			}
			text, there := lease.Annotations[edge.AnnotationHubs]
			hubs, ok := edge.ParsePoolHubs(text)
			if there && (!ok || hubs.Term != 7 || hubs.Links["up"] != len(nodes) || hubs.NewestSettings != 4) {
				t.Errorf("of the hubs of %v the cloud was told %+v, %t", nodes, hubs, ok)
			}
			_, left := lease.Annotations[edge.PrefixReports+"new"]
			if has := len(nodes) > 0; has && left || lease.Annotations["example.org/own"] == "" {
				t.Errorf("a report of what this leader knows, and no more: %v", lease.Annotations)
			}
			return ptr.Deref(lease.Spec.HolderIdentity, "") + ": " + lease.Annotations[edge.AnnotationReachedNodes]
		}
		var filled atomic.Pointer[map[string]edge.Filling]
		filled.Store(&map[string]edge.Filling{"services": edge.FillingNone})
		r := NewReporter(ReporterConfig{Node: "a", Pool: "p1", Cloud: cloud.CoordinationV1()})
		from := Source{
			Fillings: func() map[string]edge.Filling { return *filled.Load() },
		}
		var term atomic.Bool
		term.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		renew("a", "b")
		from.Beats = follow(t, pool).Beats
		go func() { ended <- r.Run(ctx, from, edge.Term{Transitions: 7, Valid: term.Load}) }()
		synctest.Wait()
		time.Sleep(time.Second)
		renew("a", "b")
		time.Sleep(reportEvery)
		if got := said(); got != "a: a,b" {
			t.Errorf("the cloud was told %q", got)
		}
		ofHubs := func() string {
			looks++
			lease, err := reports.Get(t.Context(), "yurt-coordinator-p1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return lease.Annotations[edge.AnnotationHubVersion]
		}
		if got := ofHubs(); got != "v0.2.0=a;b" {
			t.Errorf("the cloud was told of hubs %q", got)
		}
		for range 5 {
			renew("a", "b")
			time.Sleep(10 * time.Second)
		}
		if n := writes(); n != 1 {
			t.Errorf("%d writes of what has not changed", n)
		}
		ways := func(want string) {
			t.Helper()
			looks++
			lease, err := reports.Get(t.Context(), "yurt-coordinator-p1", metav1.GetOptions{})
			if got := lease.Annotations[edge.AnnotationKubelet]; err != nil || got != want {
				t.Errorf("of kubelets it was told %q, %v; want %q", got, err, want)
			}
		}
		ways("a=unapproved,b=unapproved")
		kubelet = "pinned/" + strings.Repeat("0a", 32)
		renew("b")
		kubelet = "who knows"
		renew("a")
		time.Sleep(reportEvery)
		ways("b=pinned")
		if n := writes(); n != 2 {
			t.Errorf("%d writes, want one more, at once", n)
		}
		fillings := func(want string) {
			t.Helper()
			looks++
			lease, err := reports.Get(t.Context(), "yurt-coordinator-p1", metav1.GetOptions{})
			if got, there := lease.Annotations[edge.AnnotationPoolResources]; err != nil || got != want || there != (want != "") {
				t.Errorf("of what the pool shares it was told %q, %v; want %q", got, err, want)
			}
		}
		fillings("services=none")
		filled.Store(&map[string]edge.Filling{"services": edge.FillingCurrent})
		time.Sleep(reportEvery)
		fillings("services=current")
		filled.Store(new(map[string]edge.Filling)) // a new leader does not know
		time.Sleep(reportEvery)
		fillings("")
		if n := writes(); n != 4 {
			t.Errorf("%d writes, want two more, at once", n)
		}
		for range 8 {
			renew("a")
			time.Sleep(10 * time.Second)
		}
		if got, n := said(), writes(); got != "a: a" || n > 6 {
			t.Errorf("the cloud was told %q, with %d writes", got, n)
		}
		if n := requests("get") - looks; n != 1 {
			t.Errorf("the report was read %d times, though nobody else wrote it", n)
		}
		refused := false
		cloud.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			defer func() { refused = true }()
			return !refused, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "yurt-coordinator-p1", nil)
		})
		filled.Store(&map[string]edge.Filling{"services": edge.FillingCurrent})
		for range 2 {
			renew("a")
			time.Sleep(10 * time.Second)
		}
		if n := requests("get") - looks; n != 2 || !refused {
			t.Errorf("the report was read %d times, want once more after a conflict", n)
		}
		fillings("services=current")
		if n := len(pool.Calls()); n > 4 {
			t.Errorf("the coordinator was asked %d times in two minutes", n)
		}
		term.Store(false)
		before := writes()
		for range 8 {
			renew("a", "b")
			time.Sleep(10 * time.Second)
		}
		if n := writes(); n != before {
			t.Errorf("%d writes of one who leads no more", n-before)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSlots checks that a hub that leads at several coordinators writes one report of all that it sees, in the Lease of the
// lowest slot. Two hubs that each lead at another coordinator do not overwrite each other.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var writes atomic.Int64
		var sum atomic.Value // about hubs, as it was last told of slot 0: not every report has it
		sum.Store("")
		cloud.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			lease, ok := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			if told := lease.Annotations[edge.AnnotationHubs]; ok && lease.Name == "yurt-coordinator-p1" && told != "" {
				sum.Store(told)
			}
			return false, nil, nil
		})
		pools := map[edge.Slot]*hubtest.LeaseServer{0: hubtest.NewLeaseServer(10), 1: hubtest.NewLeaseServer(10)}
		hear := map[edge.Slot][]string{0: {"a", "b"}, 1: {"a", "c"}}
		renew := func() {
			for slot, names := range hear {
				for _, name := range names {
					says := map[string]string{edge.AnnotationHub: edge.HubReport{Link: "up"}.String()}
					if pools[slot].Peek(corev1.NamespaceNodeLease, name) != nil {
						pools[slot].Edit(corev1.NamespaceNodeLease, name, func(*coordinationv1.Lease) {})
						continue
					}
					lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
						Namespace: corev1.NamespaceNodeLease, Name: name, Annotations: says,
					}}
					leases := pools[slot].Leases(corev1.NamespaceNodeLease)
					if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		pass := func(d time.Duration) {
			for range d / (10 * time.Second) {
				renew()
				time.Sleep(10 * time.Second)
			}
		}
		reports := cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		for _, slot := range edge.Slots() { // the fake client creates nothing by PUT
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p1").ReportLease(slot)}}
			if _, err := reports.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		said := func(slot edge.Slot) string {
			lease, err := reports.Get(t.Context(), edge.PoolName("p1").ReportLease(slot), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if lease.Spec.HolderIdentity == nil {
				return ""
			}
			return fmt.Sprintf("%s, %d: %s", *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions,
				lease.Annotations[edge.AnnotationReachedNodes])
		}
		is := func(what string, want ...string) {
			t.Helper()
			if got := []string{said(0), said(1), said(2)}; !slices.Equal(got, append(want, "")) {
				t.Errorf("%s: it says %q, want %q", what, got, want)
			}
		}
		reporter := func(node edge.NodeName) *Reporter {
			return NewReporter(ReporterConfig{Node: node, Pool: "p1", Cloud: cloud.CoordinationV1()})
		}
		lead := func(r *Reporter, slot edge.Slot, term int32) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			from := Source{Slot: slot, Beats: follow(t, pools[slot]).Beats}
			go func() {
				ended <- r.Run(ctx, from, edge.Term{Transitions: term, Valid: func() bool { return true }})
			}()
			return func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		a, b := reporter("a"), reporter("b")
		renew()
		leaveHigher := lead(a, 1, 7)
		pass(time.Minute)
		is("it leads at a standby alone", "", "a, 7: a,c")
		leaveLower := lead(a, 0, 3)
		pass(time.Minute)
		is("it leads at home, too", "a, 3: a,b,c", "a, 7: a,c")
		if told, _ := sum.Load().(string); !strings.Contains(told, `"up":3`) {
			t.Errorf("of three hubs the cloud is told %s", told)
		}
		if before := writes.Load(); before == 0 {
			t.Error("nobody writes")
		} else if pass(10 * sayEvery); writes.Load()-before > 11 {
			t.Errorf("%d writes in ten minutes, want one a minute", writes.Load()-before)
		}
		leaveHigher()
		leaveHigher = lead(b, 1, 8)
		pass(time.Minute)
		is("another leads at the standby", "a, 3: a,b", "b, 8: a,c")
		leaveLower()
		leaveHigher()
		leaveHigher, leaveLower = lead(a, 1, 9), lead(a, 0, 4)
		pass(time.Minute)
		is("it leads at both", "a, 4: a,b,c", "b, 8: a,c")
		leaveLower()
		pass(20 * time.Second)
		is("it leads no more at home", "a, 4: a,b,c", "a, 9: a,c")
		leaveHigher()
	})
}
