package autonomy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

func duration(d string) map[string]string {
	return map[string]string{edge.AnnotationAutonomyDuration: d}
}

var withoutEnd = map[string]string{edge.AnnotationAutonomy: "true"}

// expect holds what was written against what should have been.
func (w *world) expect(what string, want ...string) {
	w.t.Helper()
	if said := w.said(); !slices.Equal(said, want) {
		w.t.Errorf("%s: wrote\n  %s\nwant\n  %s", what, strings.Join(said, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestLife follows two Pods through all that can be said of their node.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", nil)
	w.createPod("a", "n1", both(300, 300), nil)
	w.createPod("ds", "n1", both(-1, -1), nil)
	w.pass(time.Minute)
	w.expect("an ordinary node")
	if _, put := w.policy.registry.get("n1"); put != 0 {
		t.Error("an ordinary node is held in the registry")
	}

	w.annotate("n1", duration("1h"))
	w.pass(time.Second)
	w.expect("annotated", "n1 True Autonomous", "event Normal NodeAutonomous", "a nr:inf un:inf nr=300 un=300 held=1m0s")
	w.pass(20 * time.Second)
	w.expect("held", "a nr:3600 un:3600 nr=300 un=300")

	w.createPod("b", "n1", both(60, 60), nil)
	w.pass(time.Millisecond)
	w.expect("a new Pod", "b nr:inf un:inf nr=60 un=60 held=1m21s")
	w.pass(20 * time.Second)
	w.expect("a new Pod, held", "b nr:3600 un:3600 nr=60 un=60")

	w.annotate("n1", duration("1 hour"))
	w.pass(time.Minute)
	w.expect("unreadable", "n1 Unknown InvalidDuration", "event Warning InvalidAutonomyDuration")

	w.annotate("n1", withoutEnd)
	w.pass(time.Minute)
	w.expect("without end", "n1 True Autonomous", "event Normal NodeAutonomous",
		"a nr:inf un:inf nr=300 un=300 held=2m41.001s", "b nr:inf un:inf nr=60 un=60 held=2m41.001s")

	w.start()
	w.pass(time.Minute)
	w.expect("restarted")

	w.annotate("n1", nil)
	w.pass(time.Second)
	w.expect("released", "a nr:300 un:300", "b nr:60 un:60", "n1 False NotAutonomous", "event Normal NodeAutonomyEnded")
	if _, put := w.policy.registry.get("n1"); put != 0 || w.policy.registry.any.Get() {
		t.Error("a node that was released is held in the registry")
	}
	w.pass(time.Hour)
	w.start()
	w.pass(time.Hour)
	w.expect("an ordinary node again")
}

func TestEvictedInTime(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Second, 9 * time.Second} {
		for _, tt := range []struct {
			name string
			life func(w *world)
			want string // when the Pod, whose own time is 300 s, is evicted
		}{
			{"ordinary", func(w *world) { w.lose("n1") }, "5m0s"},
			{"an hour", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
			}, "1h1m0s"},
			{"without end", func(w *world) {
				w.annotate("n1", withoutEnd)
				w.pass(time.Minute)
				w.lose("n1")
			}, "never"},
			{"without end, and lost in the same moment", func(w *world) {
				w.annotate("n1", withoutEnd)
				w.lose("n1")
			}, "never"},
			{"an hour, lost in the same moment", func(w *world) {
				w.lose("n1")
				w.annotate("n1", duration("1h"))
			}, "1h0m10s"},
			{"an hour, lost when the hold ends", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(HoldFor)
				w.lose("n1")
			}, "1h0m10s"},
			{"an hour, lost before", func(w *world) {
				w.lose("n1")
				w.pass(4 * time.Minute)
				w.annotate("n1", duration("1h"))
			}, "1h4m10s"},
			{"without end, lost before", func(w *world) {
				w.lose("n1")
				w.pass(4 * time.Minute)
				w.annotate("n1", withoutEnd)
			}, "never"},
			{"too late", func(w *world) {
				w.lose("n1")
				w.pass(310 * time.Second)
				w.annotate("n1", withoutEnd)
			}, "5m0s"},
			{"an hour, made two", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
				w.pass(59 * time.Minute)
				w.annotate("n1", duration("2h"))
			}, "3h0m10s"},
			{"an hour taken away", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
				w.pass(time.Minute)
				w.annotate("n1", nil)
			}, "7m10s"},
			{"without end, taken away", func(w *world) {
				w.annotate("n1", withoutEnd)
				w.pass(time.Minute)
				w.lose("n1")
				w.pass(time.Hour)
				w.annotate("n1", nil)
			}, "1h6m0s"},
			{"without end, taken away at once", func(w *world) {
				w.lose("n1")
				w.pass(time.Minute)
				w.annotate("n1", withoutEnd)
				w.pass(time.Second)
				w.annotate("n1", nil)
			}, "6m10s"},
			{"made a number at once", func(w *world) {
				w.lose("n1")
				w.pass(time.Minute)
				w.annotate("n1", withoutEnd)
				w.pass(time.Second)
				w.annotate("n1", duration("1h"))
			}, "1h1m10s"},
			{"made unreadable while lost", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
				w.annotate("n1", duration("2"))
			}, "1h1m0s"},
			{"found again", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
				w.pass(59 * time.Minute)
				w.find("n1")
			}, "never"},
			{"restart while held", func(w *world) {
				w.lose("n1")
				w.pass(4 * time.Minute)
				w.annotate("n1", duration("1h"))
				w.pass(5 * time.Second)
				w.start()
			}, "1h4m10s"},
			{"the controller was away when it was taken away", func(w *world) {
				w.annotate("n1", duration("1h"))
				w.pass(time.Minute)
				w.lose("n1")
				w.due = map[task]time.Time{}
				w.annotate("n1", nil)
				w.start()
			}, "6m10s"},
		} {
			t.Run(fmt.Sprint(tt.name, " ", lag), func(t *testing.T) {
				w := newWorld(t)
				w.evict.lag = lag
				w.createNode("n1", nil)
				w.createPod("p", "n1", both(300, 300), nil)
				tt.life(w)
				w.pass(24 * time.Hour)
				got := "never"
				if len(w.evict.gone) > 0 {
					got = w.evict.gone[0]
				}
				want := tt.want
				if want != "never" {
					d, err := time.ParseDuration(want)
					if err != nil {
						t.Fatal(err)
					}
					want = fmt.Sprintf("p after %v", d+lag)
				}
				if got != want {
					t.Errorf("evicted: %s, want %s", got, want)
				}
			})
		}
	}
}

// TestConflicts: single Pods and sweeps meet, and the API server says conflict at random. What is written in the end is
// the same.
func TestConflicts(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		row := 0
		w.fail = func(kind, name string) error {
			if row++; row%3 != 0 && r.IntN(2) == 0 {
				return apierrors.NewConflict(schema.GroupResource{Resource: kind}, name, errors.New("changed meanwhile"))
			}
			return nil
		}
		w.createNode("n1", duration("1h"))
		for i := range 5 {
			w.createPod(fmt.Sprint("p", i), "n1", both(300, 300), nil)
		}
		w.pass(time.Minute)
		for i := range 5 {
			if got := text(w.pod(fmt.Sprint("p", i))); got != "nr:3600 un:3600 nr=300 un=300" {
				t.Errorf("seed %d: p%d has %s", seed, i, got)
			}
		}
		w.annotate("n1", nil)
		w.pass(time.Minute)
		for i := range 5 {
			if got := text(w.pod(fmt.Sprint("p", i))); got != "nr:300 un:300" {
				t.Errorf("seed %d: p%d is left with %s", seed, i, got)
			}
		}
		if len(w.due) != 0 {
			t.Errorf("seed %d: %v is due", seed, w.due)
		}
	}
}

// TestOutdatedCopy: a patch that was decided on an older state of the Pod is refused whole.
func TestOutdatedCopy(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", nil)
	w.createPod("p", "n1", both(300, 300), nil)
	outdated := w.pod("p")
	newer := w.pod("p")
	newer.Spec.Tolerations = append([]corev1.Toleration{tol("example.com/x", noExecute, 7)}, newer.Spec.Tolerations...)
	if err := w.client.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if _, err := w.policy.settle(t.Context(), outdated, Terms{Rule: Kept, For: Forever}); !apierrors.IsConflict(err) {
		t.Errorf("%v, want a conflict", err)
	}
	if got := text(w.pod("p")); got != "example.com/x:7 nr:300 un:300" {
		t.Errorf("the Pod has %s", got)
	}
}

func TestFailures(t *testing.T) {
	refused := errors.New("refused")
	t.Run("one Pod that is refused keeps no other from it", func(t *testing.T) {
		w := newWorld(t)
		w.createNode("n1", nil)
		for _, name := range []string{"a", "b", "c"} {
			w.createPod(name, "n1", both(300, 300), nil)
		}
		w.fail = func(_, name string) error {
			if name == "b" {
				return refused
			}
			return nil
		}
		w.pass(time.Second)
		w.annotate("n1", withoutEnd)
		delete(w.due, task{"node", control.Request("n1")})
		_, err := w.policy.reconcileNode(t.Context(), control.Request("n1"))
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "default/b") {
			t.Errorf("reconcile = %v", err)
		}
		if got := text(w.pod("c")); got != "nr:inf un:inf nr=300 un=300 held=1s" {
			t.Errorf("c has %s", got)
		}
		w.fail = nil
		w.run(task{"node", control.Request("n1")})
		if got := text(w.pod("b")); got != "nr:inf un:inf nr=300 un=300 held=1s" {
			t.Errorf("b has %s", got)
		}
	})
	t.Run("no Pod is touched before the Node says so", func(t *testing.T) {
		w := newWorld(t)
		w.createNode("n1", nil)
		w.createPod("p", "n1", both(300, 300), nil)
		w.fail = func(kind, _ string) error {
			if kind == "Node" {
				return refused
			}
			return nil
		}
		w.annotate("n1", withoutEnd)
		if _, err := w.policy.reconcileNode(t.Context(), control.Request("n1")); !errors.Is(err, refused) {
			t.Errorf("reconcile = %v", err)
		}
		w.expect("a Node that can't be written")
	})
	t.Run("the Node says that it ended only after the last Pod", func(t *testing.T) {
		w := newWorld(t)
		w.createNode("n1", withoutEnd)
		w.createPod("p", "n1", both(300, 300), nil)
		w.pass(time.Minute)
		w.said()
		w.fail = func(kind, _ string) error {
			if kind == "Pod" {
				return refused
			}
			return nil
		}
		w.annotate("n1", nil)
		if _, err := w.policy.reconcileNode(t.Context(), control.Request("n1")); !errors.Is(err, refused) {
			t.Errorf("reconcile = %v", err)
		}
		w.expect("a Pod that can't be written")
		w.fail = nil
		w.start() // and then nobody remembers but the Node
		w.pass(time.Minute)
		w.expect("after it", "p nr:300 un:300", "n1 False NotAutonomous", "event Normal NodeAutonomyEnded")
	})
	t.Run("what is gone needs nothing", func(t *testing.T) {
		w := newWorld(t)
		w.createNode("n1", withoutEnd)
		w.createPod("p", "n1", both(300, 300), nil)
		gone := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
		w.fail = func(string, string) error { return gone }
		for name, f := range map[string]func() (reconcile.Result, error){
			"Pod": func() (reconcile.Result, error) {
				return w.policy.reconcilePod(t.Context(), reconcile.Request{NamespacedName: keyOf("p")})
			},
			"no Pod": func() (reconcile.Result, error) {
				return w.policy.reconcilePod(t.Context(), reconcile.Request{NamespacedName: keyOf("ghost")})
			},
			"Node":    func() (reconcile.Result, error) { return w.policy.reconcileNode(t.Context(), control.Request("n1")) },
			"no Node": func() (reconcile.Result, error) { return w.policy.reconcileNode(t.Context(), control.Request("ghost")) },
		} {
			if result, err := f(); err != nil || !result.IsZero() {
				t.Errorf("%s: %v, %v", name, result, err)
			}
		}
	})
}

// TestSteadyStateIsSilent: kubelets write their Nodes' and Pods' status all day.
func TestSteadyStateIsSilent(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", duration("1h"))
	w.createNode("n2", nil)
	w.createPod("a", "n1", both(300, 300), nil)
	w.createPod("b", "n2", both(300, 300), nil)
	w.pass(time.Minute)
	w.said()
	w.lists, w.gets = 0, 0
	for i := range 100 {
		for _, node := range []string{"n1", "n2"} {
			w.editNode(node, func(n *corev1.Node) { n.Spec.PodCIDR = fmt.Sprint("10.0.", i, ".0/24") })
		}
		for _, pod := range []string{"a", "b"} {
			w.podChanged(w.pod(pod))
		}
		w.pass(10 * time.Second)
	}
	w.expect("steady")
	if w.lists != 0 || w.gets != 0 {
		t.Errorf("%d lists and %d gets", w.lists, w.gets)
	}
}

// TestNodeOfTheSameName: a kubelet registers its Node anew without annotations, and the Pods may still be there.
func TestNodeOfTheSameName(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", withoutEnd)
	w.createPod("p", "n1", both(300, 300), nil)
	w.pass(time.Minute)
	w.said()
	w.deleteNode("n1")
	w.pass(time.Second)
	if w.policy.registry.any.Get() || len(w.policy.metrics.nodes) != 0 {
		t.Error("a node that is gone is remembered")
	}
	w.createNode("n1", nil)
	w.pass(time.Minute)
	w.expect("the new one", "p nr:300 un:300")
	if w.policy.registry.any.Get() {
		t.Error("an ordinary node is held in the registry")
	}
}

// TestCopiedPod: a Pod that is made from another one's description brings our annotations along.
func TestCopiedPod(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", nil)
	w.createPod("copy", "n1", both(3600, 3600), remember("300", "300", ""))
	w.pass(time.Minute)
	w.expect("a copy", "copy nr:inf un:inf nr=300 un=300 held=0s", "copy nr:300 un:300")
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.createNode("n1", duration("1h"))
	w.createNode("n2", withoutEnd)
	w.createNode("n3", duration("x"))
	w.createNode("n4", nil)
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		w.createPod("p-"+n, n, both(300, 300), nil)
	}
	w.pass(time.Minute)
	w.annotate("n2", nil)
	w.pass(time.Minute)
	w.fail = func(string, string) error { return errors.New("refused") }
	w.annotate("n1", nil)
	w.run(task{"node", control.Request("n1")})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.policy.Metrics())
	want := `
# HELP coordinator_controller_autonomous_nodes Nodes that are annotated as autonomous, by pool and rule (Kept, or ` +
		`Unreadable where the duration is); zero on a replica that does not lead.
# TYPE coordinator_controller_autonomous_nodes gauge
coordinator_controller_autonomous_nodes{pool="pool1",rule="Unreadable"} 1
# HELP coordinator_controller_autonomy_patch_failures_total Patches of Pods' tolerations that the API server refused, ` +
		`conflicts aside.
# TYPE coordinator_controller_autonomy_patch_failures_total counter
coordinator_controller_autonomy_patch_failures_total 1
# HELP coordinator_controller_autonomy_patches_total Patches of Pods' tolerations, by step: hold (made endless), ` +
		`set (given the node's duration) and release (reset to what the Pod had).
# TYPE coordinator_controller_autonomy_patches_total counter
coordinator_controller_autonomy_patches_total{step="hold"} 2
coordinator_controller_autonomy_patches_total{step="release"} 1
coordinator_controller_autonomy_patches_total{step="set"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
