package appset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1beta1"
)

var (
	before = metav1.NewTime(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	now    = metav1.NewTime(before.Add(time.Hour))
)

func running(replicas, all, ready, updated int32) *Live {
	return &Live{Observed: true, Replicas: replicas, All: all, Ready: ready, Updated: updated}
}

func TestJudge(t *testing.T) {
	leaving, unseen := running(1, 1, 1, 1), running(1, 1, 1, 1)
	leaving.Deleting, unseen.Observed = true, false
	type outcomes = []Outcome
	for _, tt := range []struct {
		name string
		w    World
		// counts are ready, updated and total; conditions are those that are False, as "Type Reason message".
		counts     string
		conditions []string
	}{
		{"no pool", World{}, "0 0 0", []string{"PoolFound NoPool no NodePool is named or selected"}},
		{"only one that does not exist", World{Missing: []string{"p9"}}, "0 0 0",
			[]string{"PoolFound NoPool there is no NodePool p9"}},
		{"one of two does not exist", World{Outcomes: outcomes{{"a", "w-a", running(1, 1, 1, 1), ""}}, Missing: []string{"p9"}},
			"1 1 1", nil},
		{"all is well", World{Outcomes: outcomes{{"a", "w-a", running(2, 2, 2, 2), ""}, {"b", "w-b", running(0,
			0, 0, 0), ""}}}, "2 2 2", nil},
		{"one is not ready", World{Outcomes: outcomes{{"a", "w-a", running(2, 2, 1, 2), ""}}}, "0 1 1",
			[]string{"AppReady NotReady not ready in a"}},
		{"a rollout", World{Outcomes: outcomes{{"a", "w-a", running(2, 3, 2, 1), ""}}}, "1 0 1", nil},
		{"nobody has seen the newest spec", World{Outcomes: outcomes{{"a", "w-a", unseen, ""}}}, "0 0 1",
			[]string{"AppReady NotReady not ready in a"}},
		{"a name is taken", World{Outcomes: outcomes{{"a", "w-a", nil, "taken"}, {"b", "w-b", running(1, 1, 1,
			1), ""}}}, "1 1 1", []string{
			"AppDispatched WorkloadMissing no workload in a; a: taken", "AppUpdated NotAsWanted not as wanted in a; a: taken",
			"AppReady NotReady not ready in a",
		}},
		{"a patch does not fit, and the old one runs", World{Outcomes: outcomes{{"a", "w-a", running(1, 1, 1,
			1), "bad"}}}, "1 0 1",
			[]string{"AppUpdated NotAsWanted not as wanted in a; a: bad"}},
		{"it is being deleted", World{Outcomes: outcomes{{"a", "w-a", leaving, "deleted"}}}, "0 0 1",
			[]string{"AppUpdated NotAsWanted not as wanted in a; a: deleted", "AppReady NotReady not ready in a"}},
		{"one is left over", World{Outcomes: outcomes{{"a", "w-a", running(1, 1, 1, 1), ""}},
			Leaving: []string{"w-z"}}, "1 1 1",
			[]string{"AppDeleted Deleting still there: w-z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := deployments("w", nil)
			tt.w.Revision = "r"
			s := Judge(set, &tt.w, now)
			if got := fmt.Sprint(s.ReadyWorkloads, s.UpdatedWorkloads, s.TotalWorkloads); got != tt.counts {
				t.Errorf("counts %s, want %s", got, tt.counts)
			}
			if found := s.Conditions[0]; len(tt.w.Outcomes) > 0 && (found.Reason == "NotAll") != (len(tt.w.Missing) > 0) {
				t.Errorf("%+v", found)
			}
			against := conditionsAgainst(t, &s)
			if strings.Join(against, "\n") != strings.Join(tt.conditions, "\n") || len(s.Conditions) != 7 {
				t.Errorf("false are\n%s\nwant\n%s", strings.Join(against, "\n"), strings.Join(tt.conditions, "\n"))
			}
			if s.ObservedGeneration != 3 || s.CurrentRevision != "r" || len(s.Workloads) != len(tt.w.Outcomes) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// conditionsAgainst are those that are False, as "Type Reason message".
func conditionsAgainst(t *testing.T, s *v1beta1.YurtAppSetStatus) []string {
	t.Helper()
	var against []string
	for _, c := range s.Conditions {
		if c.Status != corev1.ConditionTrue && c.Type != v1beta1.AppSetReady && c.Type != v1beta1.AppSetStalled {
			against = append(against, strings.TrimSpace(string(c.Type)+" "+c.Reason+" "+c.Message))
		}
		if c.Reason == "" || c.ObservedGeneration != 3 || c.LastTransitionTime != now {
			t.Errorf("%+v", c)
		}
	}
	return against
}

// TestAsKstatusReadsIt: Ready is what counts, and Stalled is there for what does not pass by itself.
func TestAsKstatusReadsIt(t *testing.T) {
	set := deployments("w", nil)
	for want, w := range map[string]*World{
		"True/AsWanted False/NotStalled":             {Outcomes: []Outcome{{"a", "w-a", running(1, 1, 1, 1), ""}}},
		"False/NotReady False/NotStalled":            {Outcomes: []Outcome{{"a", "w-a", running(1, 1, 0, 1), ""}}},
		"False/Updating False/NotStalled":            {Outcomes: []Outcome{{"a", "w-a", running(1, 1, 1, 0), ""}}},
		"False/WorkloadMissing False/NotStalled":     {Outcomes: []Outcome{{"a", "w-a", nil, ""}}},
		"False/NotAsWanted False/NotStalled":         {Outcomes: []Outcome{{"a", "w-a", running(1, 1, 1, 1), "refused"}}},
		"False/Deleting False/NotStalled":            {Leaving: []string{"w-b"}},
		"False/InvalidSelector True/InvalidSelector": {BadPools: errors.New("oh")},
	} {
		s, got := Judge(set, w, now), map[v1beta1.YurtAppSetConditionType]string{}
		for _, c := range s.Conditions {
			got[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
		is := got[v1beta1.AppSetReady] + " " + got[v1beta1.AppSetStalled]
		if is != want || s.ObservedGeneration != set.Generation {
			t.Errorf("%s, want %s", is, want)
		}
	}
	none := Judge(set, &World{}, now)
	for _, c := range none.Conditions {
		if c.Type == v1beta1.AppSetReady && c.Status != corev1.ConditionTrue {
			t.Errorf("without pools nothing is missing: %+v", c)
		}
	}
}

func TestWhatIsWrittenChangesOnlyWithWhatIsSo(t *testing.T) {
	set := deployments("w", nil)
	w := &World{Outcomes: []Outcome{{"a", "w-a", running(1, 1, 0, 1), ""}}}
	set.Status = Judge(set, w, before)
	if again := Judge(set, w, now); fmt.Sprint(again) != fmt.Sprint(set.Status) {
		t.Errorf("%+v\n%+v", set.Status, again)
	}
	w.Outcomes[0].Live.Ready = 1
	for _, c := range Judge(set, w, now).Conditions {
		if want := map[bool]metav1.Time{true: now,
			false: before}[c.Type == v1beta1.AppSetAppReady || c.Type == v1beta1.AppSetReady]; c.LastTransitionTime != want {
			t.Errorf("%s turned at %v", c.Type, c.LastTransitionTime)
		}
	}
}

func TestASelectorThatCannotBeUsed(t *testing.T) {
	set := deployments("w", nil)
	set.Status = Judge(set, &World{Outcomes: []Outcome{{"a", "w-a", running(1, 1, 1, 1), ""}}}, before)
	s := Judge(set, &World{BadPools: errors.New("oh")}, now)
	if s.TotalWorkloads != 1 || len(s.Workloads) != 1 || s.Conditions[0].Status != corev1.ConditionFalse ||
		s.Conditions[0].Reason != "InvalidSelector" || !strings.Contains(s.Conditions[0].Message, "oh") {
		t.Errorf("%+v", s)
	}
}

func TestAStatusIsBounded(t *testing.T) {
	set, w := deployments("w", nil), &World{}
	for i := range 10000 {
		w.Outcomes = append(w.Outcomes, Outcome{fmt.Sprintf("p%05d", i), "n", nil, strings.Repeat("ü", messageMax)})
	}
	s := Judge(set, w, now)
	if len(s.Workloads) != workloadsMax || s.TotalWorkloads != 0 {
		t.Errorf("%d workloads", len(s.Workloads))
	}
	for _, c := range s.Conditions {
		if len(c.Message) > messageMax {
			t.Errorf("%s has %d bytes", c.Type, len(c.Message))
		}
	}
	if m := s.Conditions[1].Message; !strings.HasPrefix(m,
		"no workload in p00000, p00001, p00002, p00003, p00004 and 9995 more; p00000: ü") {
		t.Errorf("it says %q", m)
	}
}

func revision(name, data string, number int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: runtime.RawExtension{Raw: []byte(data)}, Revision: number,
	}
}

func TestPlanHistory(t *testing.T) {
	a, b, c := revision("a", "A", 1), revision("b", "B", 2), revision("c", "C", 5)
	type revisions = []*appsv1.ControllerRevision
	for _, tt := range []struct {
		name    string
		has     revisions
		content string
		limit   int32
		current string
		number  int64
		prune   string
	}{
		{"the first", nil, "A", 10, "", 1, ""},
		{"the same", revisions{a}, "A", 10, "a", 1, ""},
		{"the newest of some", revisions{c, a, b}, "C", 10, "c", 5, ""},
		{"a new one", revisions{c, a, b}, "D", 10, "", 6, ""},
		{"an old one again", revisions{c, a, b}, "A", 10, "a", 6, ""},
		{"too many", revisions{c, a, b}, "D", 2, "", 6, "a"},
		{"none is kept", revisions{c, a, b}, "D", 0, "", 6, "a b c"},
		{"the current one stays", revisions{c, a, b}, "A", 0, "a", 6, "b c"},
		{"just enough", revisions{c, a, b}, "A", 2, "a", 6, ""},
	} {
		p := PlanHistory(tt.has, []byte(tt.content), tt.limit)
		current, prune := "", []string{}
		if p.Current != nil {
			current = p.Current.Name
		}
		for _, r := range p.Prune {
			prune = append(prune, r.Name)
		}
		if current != tt.current || p.Number != tt.number || strings.Join(prune, " ") != tt.prune {
			t.Errorf("%s: %s, %d, prune %v", tt.name, current, p.Number, prune)
		}
	}
	named := func(uid types.UID, content string) string {
		return revisionName(&v1beta1.YurtAppSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: uid}}, []byte(content))
	}
	if named("1", "A") == named("2", "A") || named("1", "A") == named("1", "B") {
		t.Error("a revision's name is not that of its content and its YurtAppSet")
	}
}

func TestLiveOf(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 4}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1}
	if l := liveOf(d); l.Observed || l.Replicas != 1 || l.ready() || l.updated() {
		t.Errorf("%+v", l)
	}
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 4}}
	s.Spec.Replicas = ptr.To[int32](2)
	s.Status = appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 1}
	if l := liveOf(s); !l.ready() || l.updated() || l.Kind != "StatefulSet" {
		t.Errorf("%+v", l)
	}
}
