package settings

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
)

// runsWith returns a YurtCoordinator that knows a generation of PoolSettings a, with this reason of Reconciling.
func runsWith(name string, generation int64, reason string) *v1alpha1.YurtCoordinator {
	yc := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: name}}
	yc.Spec.NodePool = "p1"
	yc.Status.Settings = []v1alpha1.SettingsGeneration{{Name: "a", Generation: generation}, {Name: "b", Generation: 1}}
	is := v1alpha1.ConditionTrue
	if reason == "UpToDate" {
		is = v1alpha1.ConditionFalse
	}
	yc.Status.Conditions = []v1alpha1.YurtCoordinatorCondition{
		{Type: v1alpha1.YurtCoordinatorPending, Status: v1alpha1.ConditionFalse},
		{Type: v1alpha1.YurtCoordinatorReconciling, Status: is, Reason: reason},
	}
	return yc
}

func TestWhatIsSaidOfCoordinators(t *testing.T) {
	always := v1alpha1.CoordinatorSettings{Create: v1alpha1.CreateAlways}
	verbose := v1alpha1.CoordinatorSettings{Verbosity: ptr.To[int32](1)}
	stalled := runsWith("yc", 3, "BadSettings")
	stalled.Status.Conditions = append(stalled.Status.Conditions, v1alpha1.YurtCoordinatorCondition{
		Type: v1alpha1.YurtCoordinatorStalled, Status: v1alpha1.ConditionTrue, Reason: ReasonBadSettings, Message: "too much",
	})
	pending := runsWith("yc", 3, "TooFewNodes")
	pending.Status.Conditions[0].Status = v1alpha1.ConditionTrue
	three := []corev1.Node{member("n1", ""), member("n2", ""), member("n3", "")}
	for name, c := range map[string]struct {
		says             v1alpha1.CoordinatorSettings
		all              v1alpha1.CoordinatorSettings // what all PoolSettings say of the pool
		off              bool
		coordinators     []*v1alpha1.YurtCoordinator
		nodes            []corev1.Node
		updated, created string
		message          string
	}{
		"nothing":         {},
		"no coordinators": {says: verbose, updated: ReasonAllCoordinators},
		"all": {
			says: verbose, coordinators: of(runsWith("yc", 3, "UpToDate")),
			updated: ReasonAllCoordinators, message: "All coordinators run with their settings: 1.",
		},
		"not looked at": {
			says: verbose, coordinators: of(runsWith("yc", 2, "UpToDate")),
			updated: ReasonUpdating, message: "yc",
		},
		"new": {
			says: verbose, coordinators: of(&v1alpha1.YurtCoordinator{}),
			updated: ReasonUpdating, message: "not looked at yet",
		},
		"waits": {
			says: verbose, coordinators: of(runsWith("yc", 3, "RollingOut")),
			updated: ReasonUpdating, message: "yc (RollingOut)",
		},
		"bad": {says: verbose, coordinators: of(stalled), updated: ReasonBadSettings, message: "yc (too much)"},
		"there is none": {
			says: verbose, coordinators: of(pending), updated: ReasonAllCoordinators,
			message: "All coordinators run with their settings: 0.",
		},
		"off": {
			says: always, all: always, off: true,
			updated: ReasonControllerOff, created: ReasonControllerOff,
		},
		"made": {
			says: always, all: always, coordinators: of(runsWith("yc", 3, "UpToDate")), nodes: three,
			updated: ReasonAllCoordinators, created: ReasonAllPools, message: "All pools have a YurtCoordinator: 1.",
		},
		"not made": {
			says: always, all: always, nodes: three[:2],
			updated: ReasonAllCoordinators, created: ReasonPoolsWithout, message: "p1 (it has 2 nodes, and needs 3)",
		},
		"another says it's no": {
			says: always, nodes: three,
			updated: ReasonAllCoordinators, created: ReasonAllPools, message: "All pools have a YurtCoordinator: 0.",
		},
	} {
		s := saying("a", 2, 0, "") // generation 3
		s.Spec.Coordinator = c.says
		s.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.PoolSettingsCoordinatorsUpdated}, {Type: v1alpha1.PoolSettingsCoordinatorsCreated},
		}
		status, _ := statusOf(facts{settings: &s, withCoordinators: !c.off, pools: []poolFacts{{
			name: "p1", nodes: c.nodes, site: site{c.all, c.coordinators},
		}}}, metav1.NewTime(time.Now()))
		var messages []string
		for kind, want := range map[string]string{
			v1alpha1.PoolSettingsCoordinatorsUpdated: c.updated, v1alpha1.PoolSettingsCoordinatorsCreated: c.created,
		} {
			condition := meta.FindStatusCondition(status.Conditions, kind)
			if condition == nil {
				condition = &metav1.Condition{}
			}
			good := want == ReasonAllCoordinators || want == ReasonAllPools
			if condition.Reason != want || want != "" && good != (condition.Status == metav1.ConditionTrue) {
				t.Errorf("%s: %s is %s, %s, want %q", name, kind, condition.Status, condition.Reason, want)
			}
			messages = append(messages, condition.Message)
		}
		if !strings.Contains(strings.Join(messages, "; "), c.message) {
			t.Errorf("%s: %q", name, messages)
		}
	}
}

func of(all ...*v1alpha1.YurtCoordinator) []*v1alpha1.YurtCoordinator { return all }

func TestWhichChangesOfACoordinatorMatter(t *testing.T) {
	was := runsWith("yc", 3, "UpToDate")
	if coordinatorChanged(was, was.DeepCopy()) {
		t.Error("none does")
	}
	for what, change := range map[string]func(*v1alpha1.YurtCoordinator){
		"generation": func(yc *v1alpha1.YurtCoordinator) { yc.Status.Settings[0].Generation++ },
		"reason":     func(yc *v1alpha1.YurtCoordinator) { yc.Status.Conditions[1].Reason = "RollingOut" },
		"deleted":    func(yc *v1alpha1.YurtCoordinator) { yc.DeletionTimestamp = ptr.To(metav1.Now()) },
	} {
		is := was.DeepCopy()
		if change(is); !coordinatorChanged(was, is) {
			t.Errorf("%s does not", what)
		}
	}
	is := was.DeepCopy()
	is.Status.DelegatedNodes = []string{"n1"}
	if coordinatorChanged(was, is) {
		t.Error("a node's link does")
	}
}
