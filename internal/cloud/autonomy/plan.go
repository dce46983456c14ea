package autonomy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

// HoldFor is how long a toleration stays endless before it gets another number. In that time kube-controller-manager cancels
// the old number's timer. It normally lags behind the API server by milliseconds. If it lags by 10 s, it has lost its leader
// election.
const HoldFor = 10 * time.Second

// Step is what a change does to a Pod.
type Step string

const (
	// Leave means that nothing is written.
	Leave Step = ""

	// Hold makes tolerations endless: for good, or on the way to another number.
	Hold Step = "hold"

	// Set gives tolerations their number.
	Set Step = "set"

	// Release puts back what the Pod had, and removes our annotations.
	Release Step = "release"
)

// Change is what to write to a Pod. The zero Change writes nothing.
type Change struct {
	Step Step
	// Patch is a JSON patch. It changes only the two tolerations and our annotations.
	Patch []Operation
}

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// kept lists the taints that kube-controller-manager puts on a lost node. For each taint it names the annotation that remembers
// the Pod's own seconds.
var kept = [...]struct{ taint, annotation string }{
	{corev1.TaintNodeNotReady, edge.AnnotationOriginalNotReady},
	{corev1.TaintNodeUnreachable, edge.AnnotationOriginalUnreachable},
}

// standing is how a Pod tolerates one of these taints.
type standing struct {
	// index is that of the matching toleration if it is about this taint alone; negative means none.
	index int
	// now is what the Pod tolerates, own what it would tolerate without us, and want what it should tolerate.
	now, own, want Seconds
}

// Plan decides what to write to a Pod of a node with these terms. It also returns when to look again if nothing happens; zero
// means never. It is pure.
func Plan(pod *corev1.Pod, terms Terms, now time.Time) (Change, time.Duration) {
	if terms.Rule == Unreadable || ended(pod) {
		return Change{}, 0
	}
	var all [len(kept)]standing
	wrong, held := false, true
	var again time.Duration
	for i := range kept {
		s := stands(pod, i, terms)
		all[i] = s
		if s.now != s.want {
			wrong = true
			held = held && s.now == Forever
			if s.want != Forever {
				again = HoldFor
			}
		}
	}
	if !wrong {
		return tidy(pod, all, terms)
	}
	// Only a toleration that is already endless, with a date, may get a number.
	since, dated := heldSince(pod, now)
	switch {
	case !held || !dated:
		return hold(pod, all, now), again
	case since < HoldFor:
		return Change{}, HoldFor - since
	}
	return finish(pod, all, terms), 0
}

// ended reports whether no taint can evict this Pod: it has ended, it is being deleted, or it is a mirror Pod. kubelet makes
// mirror Pods tolerate all taints with the effect NoExecute.
func ended(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func stands(pod *corev1.Pod, i int, terms Terms) standing {
	s := standing{index: -1}
	if at, found := effective(pod.Spec.Tolerations, kept[i].taint); found {
		t := pod.Spec.Tolerations[at]
		s.now = Forever
		if t.TolerationSeconds != nil {
			s.now = Seconds(max(0, *t.TolerationSeconds))
		}
		if t.Key == kept[i].taint && t.Effect == corev1.TaintEffectNoExecute {
			s.index = at
		}
	}
	// We only add, so a Pod never had more than it has now. An annotation that says otherwise is not ours.
	s.own = s.now
	if was, ok := remembered(pod, i); ok {
		s.own = min(was, s.now)
	}
	s.want = s.own
	if terms.Rule == Kept {
		s.want = max(s.own, terms.For)
	}
	return s
}

// effective finds the toleration that kube-controller-manager uses: the first that matches. The taint has no value.
func effective(tolerations []corev1.Toleration, taint string) (int, bool) {
	i := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute, t.Key != "" && t.Key != taint:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		}
		return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == ""
	})
	return i, i >= 0
}

func remembered(pod *corev1.Pod, i int) (Seconds, bool) {
	text := pod.Annotations[kept[i].annotation]
	if text == edge.OriginalForever {
		return Forever, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return Seconds(max(0, n)), err == nil
}

// heldSince returns how long the Pod has been held; false means that its annotation has no date. A date far in the future can't
// come from a correct clock, so the hold counts as over.
func heldSince(pod *corev1.Pod, now time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[edge.AnnotationHeldSince])
	if err != nil {
		return 0, false
	}
	since := now.Sub(at)
	if since < -HoldFor {
		return HoldFor, true
	}
	return max(0, since), true
}

// hold makes all tolerations that must change endless, and remembers what the Pod had.
func hold(pod *corev1.Pod, all [len(kept)]standing, now time.Time) Change {
	e := editor{pod: pod}
	for i, s := range all {
		if s.now == s.want {
			e.remember(i, s, s.want != s.own)
			continue
		}
		e.tolerate(i, s, Forever)
		e.remember(i, s, true)
	}
	e.annotate(edge.AnnotationHeldSince, now.UTC().Format(time.RFC3339Nano))
	return e.change(Hold)
}

// finish gives all tolerations their wanted seconds.
func finish(pod *corev1.Pod, all [len(kept)]standing, terms Terms) Change {
	e := editor{pod: pod}
	for i, s := range all {
		if s.now != s.want {
			e.tolerate(i, s, s.want)
		}
		e.remember(i, s, s.want != s.own)
	}
	return e.close(all, terms)
}

// tidy corrects the annotations of a Pod whose tolerations are as they should be. While the Pod is to be kept, tidy leaves a
// valid annotation even if nothing needs it, because OpenYurt's controller puts one on every such Pod and would write it again.
func tidy(pod *corev1.Pod, all [len(kept)]standing, terms Terms) (Change, time.Duration) {
	e := editor{pod: pod}
	for i, s := range all {
		if _, ok := remembered(pod, i); ok && terms.Rule == Kept && s.want == s.own {
			continue
		}
		e.remember(i, s, s.want != s.own)
	}
	return e.close(all, terms), 0
}

// editor collects the operations of a patch.
type editor struct {
	pod         *corev1.Pod
	inPlace     []Operation // on tolerations, by their index before the patch
	added       []Operation // tolerations
	annotations []Operation
}

// tolerate sets the seconds of the toleration that is for this taint alone. The API server allows no other change of a
// toleration. If there is none for this taint alone, tolerate inserts one at the front, where it matches first. It does not
// change a toleration for all taints, because that would keep the Pod under other taints as well. The API server does not let an
// inserted toleration be removed, so later it gets the seconds that the Pod had itself.
func (e *editor) tolerate(i int, s standing, to Seconds) {
	if s.index < 0 {
		t := corev1.Toleration{
			Key: kept[i].taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		}
		if to != Forever {
			t.TolerationSeconds = ptr.To(int64(to))
		}
		if len(e.pod.Spec.Tolerations)+len(e.added) == 0 {
			e.added = append(e.added, Operation{"add", "/spec/tolerations", []corev1.Toleration{t}})
		} else {
			e.added = append(e.added, Operation{"add", "/spec/tolerations/0", t})
		}
		return
	}
	path := "/spec/tolerations/" + strconv.Itoa(s.index) + "/tolerationSeconds"
	switch {
	case to != Forever:
		e.inPlace = append(e.inPlace, Operation{"add", path, int64(to)})
	case s.now != Forever:
		e.inPlace = append(e.inPlace, Operation{Op: "remove", Path: path})
	}
}

// remember stores a Pod's own seconds in its annotation, or removes them.
func (e *editor) remember(i int, s standing, wanted bool) {
	switch {
	case !wanted:
		e.annotate(kept[i].annotation, "")
	case s.own == Forever:
		e.annotate(kept[i].annotation, edge.OriginalForever)
	default:
		e.annotate(kept[i].annotation, strconv.FormatInt(int64(s.own), 10))
	}
}

// annotate sets an annotation; an empty value removes it.
func (e *editor) annotate(key, value string) {
	was, found := e.pod.Annotations[key]
	path := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
	switch {
	case value == "" && found:
		e.annotations = append(e.annotations, Operation{Op: "remove", Path: path})
	case value != "" && value != was:
		e.annotations = append(e.annotations, Operation{"add", path, value})
	}
}

// close completes a change after which the Pod is as it should be. If we keep a toleration endless, the date of the hold stays,
// too, because the next change needs it.
func (e *editor) close(all [len(kept)]standing, terms Terms) Change {
	byUs := func(s standing) bool { return s.want == Forever && s.own != Forever }
	if !slices.ContainsFunc(all[:], byUs) {
		e.annotate(edge.AnnotationHeldSince, "")
	}
	if terms.Rule == Kept {
		return e.change(Set)
	}
	return e.change(Release)
}

func (e *editor) change(s Step) Change {
	patch := slices.Concat(e.inPlace, e.added)
	if len(e.annotations) > 0 && e.pod.Annotations == nil {
		patch = append(patch, Operation{"add", "/metadata/annotations", map[string]string{}})
	}
	patch = append(patch, e.annotations...)
	if len(patch) == 0 {
		return Change{}
	}
	return Change{s, patch}
}
