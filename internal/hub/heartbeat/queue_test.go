package heartbeat

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// lease makes the coordinator's copy: of a node, at a revision, stamped by kubelet, with options.
func lease(node string, revision int, stamp int, options ...string) *coordinationv1.Lease {
	seconds, renewed := int32(40), metav1.NewMicroTime(epoch.Add(time.Duration(stamp)*time.Second))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-node-lease", Name: node, ResourceVersion: strconv.Itoa(revision),
			Labels:      map[string]string{edge.DelegateHeartbeat: "true"},
			Annotations: map[string]string{edge.DelegateHeartbeat: "true"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	for _, option := range options {
		switch option {
		case "unmarked":
			l.Labels = nil
		case "label-only":
			l.Annotations = nil
		case "foreign":
			other := "other"
			l.Spec.HolderIdentity = &other
		case "deleting":
			l.DeletionTimestamp = &metav1.Time{Time: epoch}
		case "unstamped":
			l.Spec.RenewTime = nil
		case "host":
			l.Annotations[edge.AnnotationCoordinatorHost] = "true"
		case "short":
			*l.Spec.LeaseDurationSeconds = 8
		case "endless":
			*l.Spec.LeaseDurationSeconds = 1 << 30
		default:
			panic("unknown option " + option)
		}
	}
	return l
}

// TestTranscripts replays testdata/queue-*.txt. Lines "> SECOND OP ..." are what happens at a second; below each
// stands what the queue hands out to be written, and what it drops. Operations:
//
//	list NODE/REVISION/STAMP[/OPTION...] ...    a baseline
//	added|modified|deleted NODE REVISION STAMP [OPTION...]; stored=SECOND says what the term knows, stored=? that it
//	                                                        does not
//	next [deposed]                              hand out all that may be written
//	done|taken|refused NODE                     a write has ended, somehow, or as the cloud has said
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/queue-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			var drops []string
			l := newQueue("self", func(n edge.NodeName, why reason) {
				drops = append(drops, fmt.Sprintf("  drop %s: %s\n", n, why))
			})
			for line := range strings.Lines(string(golden)) {
				switch {
				case strings.HasPrefix(line, "#"):
					got.WriteString(line)
				case strings.HasPrefix(line, "> "):
					got.WriteString(line)
					var result strings.Builder
					replay(t, l, strings.Fields(line[2:]), &result)
					slices.Sort(drops) // several drops of one operation come in any order
					got.WriteString(strings.Join(drops, "") + result.String())
					drops = nil
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != string(golden) {
				t.Errorf("transcript differs; got:\n%s", got.String())
			}
		})
	}
}

func replay(t *testing.T, l *queue, f []string, out *strings.Builder) {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("transcript %v: %v", f, err)
		}
		return n
	}
	at := func(s string) time.Time { return epoch.Add(time.Duration(number(s)) * time.Second) }
	now := at(f[0])
	switch f[1] {
	case "list":
		var items []coordinationv1.Lease
		for _, item := range f[2:] {
			p := strings.Split(item, "/")
			items = append(items, *lease(p[0], number(p[1]), number(p[2]), p[3:]...))
		}
		l.baseline(0, items)
	case "added", "modified", "deleted":
		stored, known := now, true
		options := f[5:]
		if n := len(options); n > 0 && strings.HasPrefix(options[n-1], "stored=") {
			if s := strings.TrimPrefix(options[n-1], "stored="); s == "?" {
				known = false
			} else {
				stored = at(s)
			}
			options = options[:n-1]
		}
		if f[1] == "deleted" {
			l.unmark(0, edge.NodeName(f[2]), reasonUnmarked)
			break
		}
		l.change(0, lease(f[2], number(f[3]), number(f[4]), options...), now, stored, known)
	case "next":
		valid := func(int) bool { return len(f) == 2 }
		for s := l.next(now, valid); s != nil; s = l.next(now, valid) {
			fmt.Fprintf(out, "  write %s stamp=%d until=%d\n", s.node,
				int(renewTime(s.lease).Sub(epoch)/time.Second), int(s.deadline.Sub(epoch)/time.Second))
		}
	case "done":
		l.done(edge.NodeName(f[2]), nil, 0)
	case "refused":
		l.done(edge.NodeName(f[2]), nil, 0)
		l.refuse(edge.NodeName(f[2]), now, 0)
	case "taken":
		l.done(edge.NodeName(f[2]), nil, 0)
		l.accepted(edge.NodeName(f[2]))
	default:
		t.Fatalf("transcript has the unknown operation %q", f[1])
	}
	if f[1] != "next" {
		fmt.Fprintf(out, "  delegated=%d\n", l.count())
	}
}

func TestForward(t *testing.T) {
	copied := lease("n1", 50, 100, "host")
	copied.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid"}}
	copied.UID = "coordinator-uid"
	cloud := func(stamp int, edit ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := lease("n1", 7, stamp, "unmarked", "label-only")
		l.UID = "cloud-uid"
		l.Labels, l.Spec.LeaseDurationSeconds = map[string]string{"kept": "yes"}, new(int32(15))
		for _, e := range edit {
			e(l)
		}
		return l
	}
	annotated := func(l *coordinationv1.Lease) { l.Annotations = map[string]string{edge.DelegateHeartbeat: "true"} }
	deleting := func(l *coordinationv1.Lease) { l.DeletionTimestamp = &metav1.Time{Time: epoch} }
	early := func(seconds int) time.Time { return renewTime(cloud(seconds)) }
	tests := []struct {
		name  string
		cloud *coordinationv1.Lease
		// before says that the leader knew the Lease before it saw the renewal, knew is the revision that the node knew, and
		// latest the latest stamp that the leader has seen in the cloud.
		before bool
		knew   string
		latest time.Time
		want   reason
		stamp  time.Time // what the cloud gets; zero: kubelet's own
	}{
		{name: "missing: created"},
		{name: "missing, after a later stamp: created, and moved on", latest: early(110),
			stamp: early(110).Add(time.Microsecond)},
		{name: "older: renewed", cloud: cloud(90)},
		{name: "older and annotated: renewed", cloud: cloud(90, annotated)},
		{name: "same stamp: the node reported itself, the acknowledgement was lost", cloud: cloud(100), want: reasonReported},
		{name: "same stamp, known before", cloud: cloud(100), before: true, want: reasonReported},
		{name: "same stamp, put back since", cloud: cloud(100, annotated), latest: early(110),
			stamp: early(110).Add(time.Microsecond)},
		{name: "later: the node reported itself", cloud: cloud(110), knew: "cloud-uid/6", want: reasonReported},
		{name: "later, and nobody has written since: a clock was put back", cloud: cloud(110), before: true,
			stamp: early(110).Add(time.Microsecond)},
		{name: "later, and the node knew it: its clock was put back", cloud: cloud(110), knew: "cloud-uid/7",
			stamp: early(110).Add(time.Microsecond)},
		{name: "later and annotated: another leader's, or poison", cloud: cloud(1<<30, annotated),
			stamp: early(1 << 30).Add(time.Microsecond)},
		{name: "being deleted", cloud: cloud(90, deleting), want: reasonUnmarked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			copied := copied.DeepCopy()
			if tt.knew != "" {
				copied.Annotations[AnnotationCloudLease] = tt.knew
			}
			there := cloudLease{Lease: tt.cloud, before: tt.before, latest: tt.latest}
			if tt.cloud != nil && renewTime(tt.cloud).After(there.latest) {
				there.latest = renewTime(tt.cloud)
			}
			got, why := forward(copied, there)
			if why != tt.want {
				t.Fatalf("reason %q, want %q", why, tt.want)
			}
			if why != "" {
				return
			}
			if tt.stamp.IsZero() {
				tt.stamp = renewTime(copied)
			}
			if !renewTime(got).Equal(tt.stamp) || *got.Spec.HolderIdentity != "n1" {
				t.Errorf("spec %+v, want the node's, with renewTime %s", got.Spec, tt.stamp)
			}
			if len(got.Annotations) != 1 || got.Annotations[edge.DelegateHeartbeat] != "true" {
				t.Errorf("annotations %v, want the mark alone", got.Annotations)
			}
			if _, ok := got.Labels[edge.DelegateHeartbeat]; ok {
				t.Error("the mark reached the cloud as a label")
			}
			if tt.cloud == nil {
				if got.UID != "" || got.ResourceVersion != "" {
					t.Errorf("created with uid %q and resourceVersion %q of another server", got.UID, got.ResourceVersion)
				}
				if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "node-uid" {
					t.Errorf("owners %v, want the Node", got.OwnerReferences)
				}
				return
			}
			// A policy of the cloud refuses anything else.
			want := tt.cloud.DeepCopy()
			want.Annotations, want.Spec.RenewTime = got.Annotations, got.Spec.RenewTime
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%+v differs from the cloud's Lease in more than renewTime and mark", got)
			}
		})
	}
}

// TestAgainstNaiveModel compares the queue with a model that keeps every event and searches all of them for each answer.
func TestAgainstNaiveModel(t *testing.T) {
	nodes := []string{"a", "b", "c", "d", "e", "f", "self"}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := newQueue("self", func(edge.NodeName, reason) {})
		m := &naive{served: map[string]int{}, seen: map[string][]*metav1.MicroTime{}}
		now, revision, stamp := epoch, 100, 0
		var story []string
		for range 80 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			node := nodes[r.IntN(len(nodes))]
			switch op := r.IntN(10); op {
			case 0:
				var items []coordinationv1.Lease
				if r.IntN(4) == 0 {
					revision = 100 // another life of the coordinator
				}
				for _, n := range nodes {
					if r.IntN(3) > 0 {
						revision++
						items = append(items, *lease(n, revision, stamp-r.IntN(4)))
					}
				}
				l.baseline(0, items)
				m.list(items)
				story = append(story, fmt.Sprintf("list %d", len(items)))
			case 1, 2, 3, 4, 5:
				gone := r.IntN(4) == 3
				at := revision + 1
				if r.IntN(6) == 0 {
					at = revision - r.IntN(3) // repeated or out of order
				}
				revision = max(revision, at)
				if r.IntN(5) > 0 {
					stamp++
				}
				options := []string{"", "", "", "", "unmarked", "foreign", "short"}[r.IntN(7)]
				e := lease(node, at, stamp, strings.Fields(options)...)
				stored, known := now.Add(-time.Duration(r.IntN(20))*time.Second), r.IntN(8) > 0
				if gone {
					l.unmark(0, edge.NodeName(node), reasonUnmarked)
				} else {
					l.change(0, e, now, stored, known)
				}
				m.event(e, gone, now, stored, known)
				story = append(story, fmt.Sprintf("%s gone=%t rev=%d stamp=%d %s", node, gone, at, stamp, options))
			case 6:
				for _, n := range m.busy() {
					if r.IntN(2) == 0 {
						l.done(edge.NodeName(n), nil, 0)
						m.done(n)
						story = append(story, "done "+n)
					}
				}
			default:
				valid := r.IntN(6) > 0
				got := ""
				if s := l.next(now, func(int) bool { return valid }); s != nil {
					got = fmt.Sprintf("%s@%s", s.node, s.lease.ResourceVersion)
				}
				want := m.next(now, valid)
				story = append(story, fmt.Sprintf("next valid=%v: %s", valid, got))
				if got != want {
					t.Fatalf("seed %d: next gives %q, the model %q, after:\n%s", seed, got, want,
						strings.Join(story, "\n"))
				}
			}
		}
	}
}

// naive keeps one row for every renewal that it ever accepted, and never removes a row.
type naive struct {
	rows    []*row
	copies  map[string]*coordinationv1.Lease
	writing []string
	turns   int
	served  map[string]int // by node: when its last write began
	seen    map[string][]*metav1.MicroTime
}

type row struct {
	node          string
	lease         *coordinationv1.Lease
	seen, stored  time.Time
	known, closed bool
	turn          int
}

func (m *naive) close(node string) (turn int) {
	for _, r := range m.rows {
		if r.node == node && !r.closed {
			r.closed, turn = true, r.turn
		}
	}
	return turn
}

func (m *naive) fit(l *coordinationv1.Lease) bool {
	return l.Labels[edge.DelegateHeartbeat] == "true" && *l.Spec.HolderIdentity == l.Name
}

func (m *naive) list(items []coordinationv1.Lease) {
	m.copies = map[string]*coordinationv1.Lease{}
	for i := range items {
		m.copies[items[i].Name] = &items[i]
	}
	for _, r := range m.rows {
		if c := m.copies[r.node]; c == nil || !c.Spec.RenewTime.Equal(r.lease.Spec.RenewTime) {
			r.closed = true
		}
	}
	for node := range m.seen {
		m.forget(node)
	}
}

// forget forgets the renewals of a node that is marked no more; and its last write, if none is under way.
func (m *naive) forget(node string) {
	if m.copies[node] != nil {
		return
	}
	delete(m.seen, node)
	if !slices.Contains(m.writing, node) {
		delete(m.served, node)
	}
}

func (m *naive) event(l *coordinationv1.Lease, gone bool, now, stored time.Time, known bool) {
	if m.copies == nil {
		m.copies = map[string]*coordinationv1.Lease{}
	}
	if gone || !m.fit(l) {
		delete(m.copies, l.Name)
		m.close(l.Name)
		m.forget(l.Name)
		return
	}
	before := m.copies[l.Name]
	if before != nil {
		was, _ := strconv.Atoi(before.ResourceVersion)
		is, _ := strconv.Atoi(l.ResourceVersion)
		if is <= was {
			return
		}
	}
	m.copies[l.Name] = l
	if before != nil && before.Spec.RenewTime.Equal(l.Spec.RenewTime) {
		return
	}
	was := m.seen[l.Name]
	if slices.ContainsFunc(was[max(0, len(was)-4):], l.Spec.RenewTime.Equal) {
		return
	}
	m.seen[l.Name] = append(was, l.Spec.RenewTime)
	turn := m.close(l.Name)
	if turn == 0 {
		m.turns++
		turn = m.turns
	}
	m.rows = append(m.rows, &row{node: l.Name, lease: l, seen: now, stored: stored, known: known, turn: turn})
}

func (m *naive) next(now time.Time, valid bool) string {
	bestOf := func(first bool) *row {
		var best *row
		for _, r := range m.rows {
			if !r.closed && !slices.Contains(m.writing, r.node) && (r.node == "self") == first &&
				(best == nil || m.served[r.node] < m.served[best.node] ||
					m.served[r.node] == m.served[best.node] && r.turn < best.turn) {
				best = r
			}
		}
		return best
	}
	for _, r := range m.rows {
		bound := time.Duration(*r.lease.Spec.LeaseDurationSeconds) * time.Second / 4
		if !valid || !r.known || now.Sub(r.seen) >= bound || now.Sub(r.stored) >= bound+2*time.Second {
			r.closed = true
		}
	}
	best := bestOf(true)
	if best == nil {
		best = bestOf(false)
	}
	if best == nil || len(m.writing) == 4 {
		return ""
	}
	best.closed = true
	m.writing = append(m.writing, best.node)
	m.turns++
	m.served[best.node] = m.turns
	return best.node + "@" + best.lease.ResourceVersion
}

func (m *naive) busy() []string { return slices.Clone(m.writing) }

func (m *naive) done(node string) {
	m.writing = slices.DeleteFunc(m.writing, func(n string) bool { return n == node })
	m.forget(node)
}
