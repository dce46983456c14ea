package autonomy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yurtcoordinator/internal/edge"
)

var begin = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// tol is a toleration of a taint without a value, for a time; less than zero: without end.
func tol(key string, effect corev1.TaintEffect, seconds int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	if seconds >= 0 {
		t.TolerationSeconds = ptr.To(seconds)
	}
	return t
}

const noExecute = corev1.TaintEffectNoExecute

// both are the two tolerations that every Pod gets by admission.
func both(notReady, unreachable int64) []corev1.Toleration {
	return []corev1.Toleration{
		tol(corev1.TaintNodeNotReady, noExecute, notReady), tol(corev1.TaintNodeUnreachable, noExecute, unreachable),
	}
}

func aPod(tolerations []corev1.Toleration, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p-uid", Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "n1", Tolerations: tolerations},
	}
}

// applied returns the Pod that an API server makes of a patch.
func applied(t testing.TB, pod *corev1.Pod, patch []Operation) *corev1.Pod {
	t.Helper()
	if len(patch) == 0 {
		return pod.DeepCopy()
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build()
	body, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	after := pod.DeepCopy()
	if err := c.Patch(t.Context(), after, client.RawPatch(types.JSONPatchType, body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	checkAllowed(t, pod, after)
	return after
}

// checkAllowed holds a change to what the API server's validation of a Pod's update lets through.
func checkAllowed(t testing.TB, before, after *corev1.Pod) {
	t.Helper()
	for _, old := range before.Spec.Tolerations {
		if !slices.ContainsFunc(after.Spec.Tolerations, func(n corev1.Toleration) bool { return n.MatchToleration(&old) }) {
			t.Errorf("toleration %+v was taken away or changed", old)
		}
	}
	for _, n := range after.Spec.Tolerations {
		if n.TolerationSeconds != nil && n.Effect != noExecute {
			t.Errorf("toleration %+v has seconds without NoExecute", n)
		}
	}
	for key, value := range before.Annotations {
		if !strings.HasPrefix(key, "apps.openyurt.io/") && after.Annotations[key] != value {
			t.Errorf("annotation %s was touched", key)
		}
	}
}

// text describes a Pod as the tables do: tolerations in order, then our annotations.
func text(pod *corev1.Pod) string {
	short := map[string]string{
		corev1.TaintNodeNotReady: "nr", corev1.TaintNodeUnreachable: "un", "": "*",
		edge.AnnotationOriginalNotReady: "nr", edge.AnnotationOriginalUnreachable: "un", edge.AnnotationHeldSince: "held",
	}
	var words []string
	for _, t := range pod.Spec.Tolerations {
		seconds := "inf"
		if t.TolerationSeconds != nil {
			seconds = fmt.Sprint(*t.TolerationSeconds)
		}
		key, ok := short[t.Key]
		if !ok {
			key = t.Key
		}
		if t.Effect != noExecute {
			key += "/" + string(t.Effect)
		}
		words = append(words, key+":"+seconds)
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		value := pod.Annotations[key]
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
			value = at.Sub(begin).String()
		}
		if s, ok := short[key]; ok {
			key = s
		}
		words = append(words, key+"="+value)
	}
	return strings.Join(words, " ")
}

func remember(notReady, unreachable, held string) map[string]string {
	all := map[string]string{
		edge.AnnotationOriginalNotReady: notReady, edge.AnnotationOriginalUnreachable: unreachable,
		edge.AnnotationHeldSince: held,
	}
	maps.DeleteFunc(all, func(_, v string) bool { return v == "" })
	return all
}

func at(d time.Duration) string { return begin.Add(d).Format(time.RFC3339Nano) }

func TestPlan(t *testing.T) {
	forever, hour, short := Terms{Rule: Kept, For: Forever}, Terms{Rule: Kept, For: 3600}, Terms{Rule: Kept, For: 100}
	ordinary, broken := Terms{}, Terms{Rule: Unreadable}
	const never = time.Duration(0)
	custom := corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpEqual, Value: "x",
		Effect: noExecute, TolerationSeconds: ptr.To[int64](7)}
	negative := corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: noExecute,
		TolerationSeconds: ptr.To[int64](-5)}
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		terms Terms
		step  Step
		want  string // "" : as it was
		after time.Duration
	}{
		{"ordinary", aPod(both(300, 300), nil), ordinary, Leave, "", never},
		{"kept without end", aPod(both(300, 200), nil), forever, Hold, "nr:inf un:inf nr=300 un=200 held=0s", never},
		{"kept, first step", aPod(both(300, 200), nil), hour, Hold, "nr:inf un:inf nr=300 un=200 held=0s", HoldFor},
		{"kept, held", aPod(both(-1, -1), remember("300", "200", at(-4*time.Second))), hour, Leave, "", 6 * time.Second},
		{"kept, second step", aPod(both(-1, -1), remember("300", "200", at(-HoldFor))), hour, Set,
			"nr:3600 un:3600 nr=300 un=200", never},
		{"kept, done", aPod(both(3600, 3600), remember("300", "200", "")), hour, Leave, "", never},
		{"kept without end, done", aPod(both(-1, -1), remember("300", "300", at(-time.Hour))), forever, Leave, "", never},
		{"without end to an hour", aPod(both(-1, -1), remember("300", "300", at(-time.Hour))), hour, Set,
			"nr:3600 un:3600 nr=300 un=300", never},
		{"an hour to without end", aPod(both(3600, 3600), remember("300", "300", "")), forever, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", never},
		{"another number", aPod(both(7200, 7200), remember("300", "300", "")), hour, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},

		{"released from a number", aPod(both(3600, 3600), remember("300", "300", "")), ordinary, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},
		{"released from no end", aPod(both(-1, -1), remember("300", "200", at(-time.Hour))), ordinary, Release,
			"nr:300 un:200", never},
		{"released while held", aPod(both(-1, -1), remember("300", "200", at(-time.Second))), ordinary, Leave, "",
			9 * time.Second},
		{"released, others' annotations stay", aPod(both(-1, -1), map[string]string{"other": "x",
			edge.AnnotationOriginalNotReady: "30", edge.AnnotationOriginalUnreachable: "30",
			edge.AnnotationHeldSince: at(-time.Hour)}), ordinary, Release, "nr:30 un:30 other=x", never},

		{"own is longer", aPod(both(300, 200), nil), short, Leave, "", never},
		{"own is longer, and OpenYurt's controller remembers it", aPod(both(300, 200), remember("300", "200", "")), short, Leave,
			"", never},
		{"OpenYurt's controller has made it shorter", aPod(both(100, 100), remember("300", "300", "")), short, Leave, "", never},
		{"what is remembered is nonsense", aPod(both(300, 200), remember("much", "200", "")), short, Set, "nr:300 un:200 un=200",
			never},
		{"own is longer for one", aPod(both(300, 50), nil), short, Hold, "nr:300 un:inf un=50 held=0s", HoldFor},
		{"own is longer for one, second step", aPod(both(300, -1), remember("", "50", at(-HoldFor))), short, Set,
			"nr:300 un:100 un=50", never},
		{"own is without end, as a DaemonSet's", aPod(both(-1, -1), nil), hour, Leave, "", never},
		{"own is without end, on an ordinary node", aPod(both(-1, -1), nil), ordinary, Leave, "", never},
		{"tolerates everything, as a static Pod", aPod([]corev1.Toleration{tol("", noExecute, -1)}, nil), hour, Leave, "",
			never},
		{"all effects", aPod([]corev1.Toleration{tol(corev1.TaintNodeNotReady, "", -1),
			tol(corev1.TaintNodeUnreachable, "", -1)}, nil), hour, Leave, "", never},
		{"own was made longer than the node's", aPod(both(3600, 3600), remember("300", "300", "")), short, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},

		{"none", aPod(nil, nil), hour, Hold, "un:inf nr:inf nr=0 un=0 held=0s", HoldFor},
		{"none, second step", aPod([]corev1.Toleration{tol(corev1.TaintNodeUnreachable, noExecute, -1),
			tol(corev1.TaintNodeNotReady, noExecute, -1)}, remember("0", "0", at(-HoldFor))), hour, Set,
			"un:3600 nr:3600 nr=0 un=0", never},
		{"released to none", aPod([]corev1.Toleration{tol(corev1.TaintNodeUnreachable, noExecute, -1),
			tol(corev1.TaintNodeNotReady, noExecute, -1)}, remember("0", "0", at(-HoldFor))), ordinary, Release,
			"un:0 nr:0", never},
		{"one for all taints stays as it is", aPod([]corev1.Toleration{tol("", noExecute, 60)}, nil), hour, Hold,
			"un:inf nr:inf *:60 nr=60 un=60 held=0s", HoldFor},
		{"only the first that matches counts", aPod([]corev1.Toleration{custom,
			tol(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, -1),
			tol(corev1.TaintNodeUnreachable, noExecute, 40), tol("", noExecute, -1)}, nil), hour, Hold,
			"un:7 un/NoSchedule:inf un:inf *:inf un=40 held=0s", HoldFor},
		{"negative is nothing", aPod([]corev1.Toleration{negative}, nil), ordinary, Leave, "", never},
		{"negative is remembered as nothing", aPod([]corev1.Toleration{negative,
			tol(corev1.TaintNodeNotReady, noExecute, 50)}, nil), short, Hold, "un:inf nr:inf nr=50 un=0 held=0s", HoldFor},

		{"unreadable, new Pod", aPod(both(300, 300), nil), broken, Leave, "", never},
		{"unreadable, kept Pod", aPod(both(3600, 3600), remember("300", "300", "")), broken, Leave, "", never},
		{"unreadable, held Pod", aPod(both(-1, -1), remember("300", "300", at(-time.Hour))), broken, Leave, "", never},

		{"a copied Pod on an ordinary node", aPod(both(3600, 3600), remember("300", "300", "")), ordinary, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},
		{"claims to have had more", aPod(both(300, 300), remember("infinite", "999999", "")), ordinary, Release,
			"nr:300 un:300", never},
		{"claims to have had more, kept", aPod(both(300, 300), remember("infinite", "999999", at(-HoldFor))), hour, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},
		{"claims nonsense", aPod(both(300, 300), remember("much", "-1e9", "yesterday")), ordinary, Release,
			"nr:300 un:300", never},
		{"an undated hold is dated", aPod(both(-1, -1), remember("300", "300", "")), hour, Hold,
			"nr:inf un:inf nr=300 un=300 held=0s", HoldFor},
		{"a hold from a clock that is ahead", aPod(both(-1, -1), remember("300", "300", at(3*time.Second))), hour, Leave, "",
			HoldFor},
		{"a hold from the far future", aPod(both(-1, -1), remember("300", "300", at(time.Hour))), hour, Set,
			"nr:3600 un:3600 nr=300 un=300", never},
		{"shortened by somebody meanwhile", aPod(both(60, 60), remember("300", "300", "")), ordinary, Release,
			"nr:60 un:60", never},
		{"infinite, as OpenYurt writes it", aPod(both(-1, 3600), remember("infinite", "300", "")), ordinary, Hold,
			"nr:inf un:inf un=300 held=0s", HoldFor},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := text(tt.pod)
			change, after := Plan(tt.pod, tt.terms, begin)
			if text(tt.pod) != before {
				t.Fatalf("Plan changed its Pod to %s", text(tt.pod))
			}
			want := tt.want
			if want == "" {
				want = before
			}
			got := text(applied(t, tt.pod, change.Patch))
			if change.Step != tt.step || got != want || after != tt.after {
				t.Errorf("%s -> %s, %s, again after %v;\nwant %s, %s, %v", before, change.Step, got, after, tt.step, want,
					tt.after)
			}
		})
	}
}

func TestPodsThatNothingEvicts(t *testing.T) {
	now := metav1.NewTime(begin)
	for name, edit := range map[string]func(*corev1.Pod){
		"deleted":   func(p *corev1.Pod) { p.DeletionTimestamp = &now },
		"succeeded": func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":    func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"mirror":    func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
	} {
		pod := aPod(both(300, 300), nil)
		if change, _ := Plan(pod, Terms{Rule: Kept, For: Forever}, begin); change.Step == Leave {
			t.Errorf("%s: the test's Pod is left alone before it is edited", name)
		}
		edit(pod)
		if change, after := Plan(pod, Terms{Rule: Kept, For: Forever}, begin); change.Step != Leave || after != 0 {
			t.Errorf("%s: %+v, %v", name, change, after)
		}
	}
}

// TestAnyCourse changes a node's terms at random moments, with any Pod on it, and holds what becomes of the Pod against
// what must hold of every course.
func TestAnyCourse(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		pod := aPod(anyTolerations(r), nil)
		own := bearsFor(pod)
		now := begin
		var terms Terms
		for range 12 {
			if r.IntN(3) == 0 {
				terms = [...]Terms{{}, {Rule: Kept, For: Forever}, {Rule: Kept, For: Seconds(1 + r.IntN(500))},
					{Rule: Unreadable}}[r.IntN(4)]
			}
			now = now.Add(time.Duration(r.IntN(15)) * time.Second)
			pod, _ = stepOnce(t, seed, pod, terms, now)
		}
		if terms.Rule == Unreadable {
			terms = Terms{}
		}
		for i := 0; ; i++ { // left alone, it settles
			next, due := stepOnce(t, seed, pod, terms, now)
			now = now.Add(due)
			if text(next) == text(pod) && due == 0 {
				break
			}
			if pod = next; i > 4 {
				t.Fatalf("seed %d: does not settle: %s", seed, text(pod))
			}
		}
		got := bearsFor(pod)
		for i := range own {
			want := own[i]
			if terms.Rule == Kept {
				want = max(want, terms.For)
			}
			if got[i] != want {
				t.Errorf("seed %d, %+v: bears %s for %d, had %d: %s", seed, terms, kept[i].taint, got[i], own[i], text(pod))
			}
		}
		if terms.Rule == Ordinary && len(pod.Annotations) != 0 {
			t.Errorf("seed %d: is left with %v", seed, pod.Annotations)
		}
	}
}

// stepOnce does what Plan says now. A number must never replace a number, nor be written before the hold is over.
func stepOnce(t *testing.T, seed uint64, pod *corev1.Pod, terms Terms, now time.Time) (*corev1.Pod, time.Duration) {
	t.Helper()
	change, after := Plan(pod, terms, now)
	next := applied(t, pod, change.Patch)
	was, is := bearsFor(pod), bearsFor(next)
	for i := range was {
		if was[i] != is[i] && was[i] != Forever && is[i] != Forever {
			t.Errorf("seed %d: %d replaces %d: %s", seed, is[i], was[i], text(next))
		}
		held, err := time.Parse(time.RFC3339Nano, pod.Annotations[edge.AnnotationHeldSince])
		if was[i] == Forever && is[i] != Forever && (err != nil || now.Sub(held) < HoldFor) {
			t.Errorf("seed %d: the hold ended after %v: %s", seed, now.Sub(held), text(next))
		}
	}
	return next, after
}

// bearsFor is for how long a Pod bears each of the two taints, as kube-controller-manager reads it.
func bearsFor(pod *corev1.Pod) [len(kept)]Seconds {
	var out [len(kept)]Seconds
	for i, k := range kept {
		taint := corev1.Taint{Key: k.taint, Effect: noExecute}
		for _, tol := range pod.Spec.Tolerations {
			if !tol.ToleratesTaint(discard, &taint, true) {
				continue
			}
			if out[i] = Forever; tol.TolerationSeconds != nil {
				out[i] = Seconds(*tol.TolerationSeconds)
			}
			break
		}
	}
	return out
}

func anyTolerations(r *rand.Rand) []corev1.Toleration {
	var out []corev1.Toleration
	for range r.IntN(4) {
		key := [...]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "", "other"}[r.IntN(4)]
		switch r.IntN(6) {
		case 0:
			out = append(out, tol(key, noExecute, -1))
		case 1:
			out = append(out, tol(key, corev1.TaintEffectNoSchedule, -1))
		case 2:
			out = append(out, corev1.Toleration{Key: "other", Operator: corev1.TolerationOpGt, Value: "3"})
		default:
			out = append(out, tol(key, noExecute, int64(r.IntN(400))))
		}
	}
	return out
}

func TestTermsOf(t *testing.T) {
	const flag, duration = edge.AnnotationAutonomy, edge.AnnotationAutonomyDuration
	for _, tt := range []struct {
		annotations map[string]string
		want        Terms
	}{
		{nil, Terms{}},
		{map[string]string{flag: "true"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{flag: "false"}, Terms{}},
		{map[string]string{flag: "True"}, Terms{}},
		{map[string]string{duration: "2h"}, Terms{Rule: Kept, For: 7200}},
		{map[string]string{duration: "1h30m"}, Terms{Rule: Kept, For: 5400}},
		{map[string]string{duration: "1ms"}, Terms{Rule: Kept, For: 1}},
		{map[string]string{duration: "1.5s"}, Terms{Rule: Kept, For: 2}},
		{map[string]string{duration: "0s"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{duration: "0"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{duration: "-1s"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{duration: "2562047h47m16.854775807s"}, Terms{Rule: Kept, For: 9223372037}},
		{map[string]string{flag: "true", duration: "2h"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{flag: "true", duration: "soon"}, Terms{Rule: Kept, For: Forever}},
		{map[string]string{flag: "false", duration: "2h"}, Terms{Rule: Kept, For: 7200}},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations}}
		if got := TermsOf(node); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.annotations, got, tt.want)
		}
	}
	for _, text := range []string{"24", "two hours", "", " 2h", "99999999999h", strings.Repeat("h\n", 10000)} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{duration: text}}}
		got := TermsOf(node)
		if got.Rule != Unreadable || !strings.Contains(got.Problem, duration) || !strings.Contains(got.Problem, "1h30m") ||
			len(got.Problem) > 400 || strings.Contains(got.Problem, "\n") {
			t.Errorf("%.20q: %+v", text, got)
		}
	}
}
