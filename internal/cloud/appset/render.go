package appset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

const (
	// LabelYurtAppSet is on workloads that this package has written. It names their YurtAppSet.
	LabelYurtAppSet = "apps.openyurt.io/yurtappset"

	// LabelPoolName is on workloads and their Pods. It names their pool.
	LabelPoolName = edge.LabelWorkloadPool

	// LabelOpenYurt is on workloads. OpenYurt's controller finds those of a YurtAppSet by it.
	LabelOpenYurt = "apps.openyurt.io/ref-yurtappset"

	// LabelRevision is on workloads that OpenYurt's controller has made, and on their Pods: the revision that they are of.
	LabelRevision = "apps.openyurt.io/controller-revision-hash"

	// AnnotationPods is on workloads: the PodsHash that they were written with.
	AnnotationPods = "apps.openyurt.io/pods-hash"

	// AnnotationNodes is on workloads: the nodes that had pulled their images, separated by spaces. Their Pods prefer these.
	AnnotationNodes = "apps.openyurt.io/pre-pulled-nodes"

	// nameMax is the longest name of a workload. Its Pods have a label whose value is that name, a dash and a hash of ten
	// characters. A label's value has at most 63 characters.
	nameMax = 63 - 11
)

// poolVariables stand for the pool's name in strings of a patch. The first is OpenYurt's.
var poolVariables = []string{"{{nodepool-name}}", "{{nodepool}}"}

// Wanted is what a pool must run.
type Wanted struct {
	Pool, Kind, Name string
	// Object is the Deployment or StatefulSet to apply; nil if Err says why there is none.
	Object *unstructured.Unstructured
	// Labels and Annotations are the Object's.
	Labels, Annotations map[string]string
	// Hash is equal for equal Objects. PodsHash is equal if their Pods are: a change of it is what a rollout brings to the pools.
	Hash, PodsHash string
	// Err says what is wrong with a tweak.
	Err error

	had Had
}

// Had is what a rendering keeps of a pool's existing workload. Another name would mean a new workload, and other labels on the
// Pods would mean new Pods. The zero Had means that there is no workload yet.
type Had struct {
	Name string
	// Revision is its LabelRevision, PodRevision that of its Pods.
	Revision, PodRevision string
	// Nodes are those that its Pods prefer, because they had pulled the images.
	Nodes []string
}

// Selection holds the pools of a YurtAppSet.
type Selection struct {
	Pools []*v1beta2.NodePool // sorted by name
	// Missing are the named pools that do not exist.
	Missing []string
	// Canaries are the names of those that spec.rollout.canary selects.
	Canaries map[string]bool
	// Others are the names of the pools that exist and are not selected.
	Others map[string]bool
}

// Select finds the pools. It fails on a selector that can't be used.
func Select(spec *v1beta1.YurtAppSetSpec, pools []v1beta2.NodePool) (Selection, error) {
	matches, err := matcher(spec.NodePoolSelector, spec.Pools)
	if err != nil {
		return Selection{}, err
	}
	s := Selection{Canaries: make(map[string]bool), Others: make(map[string]bool)}
	canary := func(*v1beta2.NodePool) bool { return false }
	if spec.Rollout != nil {
		if canary, err = matcher(spec.Rollout.Canary, nil); err != nil {
			return Selection{}, fmt.Errorf("rollout.canary: %w", err)
		}
	}
	for i := range pools {
		if matches(&pools[i]) {
			s.Pools = append(s.Pools, &pools[i])
			s.Canaries[pools[i].Name] = canary(&pools[i])
		} else {
			s.Others[pools[i].Name] = true
		}
	}
	slices.SortFunc(s.Pools, func(a, b *v1beta2.NodePool) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range spec.Pools {
		if !slices.ContainsFunc(s.Pools, func(p *v1beta2.NodePool) bool { return p.Name == name }) {
			s.Missing = append(s.Missing, name)
		}
	}
	slices.Sort(s.Missing)
	return s, nil
}

// matcher selects pools by labels and by name.
func matcher(selector *metav1.LabelSelector, names []string) (func(*v1beta2.NodePool) bool, error) {
	byLabel, err := metav1.LabelSelectorAsSelector(selector) // nil selects nothing
	if err != nil {
		return nil, fmt.Errorf("nodepoolSelector: %w", err)
	}
	named := make(map[string]bool, len(names))
	for _, name := range names {
		named[name] = true
	}
	return func(p *v1beta2.NodePool) bool { return named[p.Name] || byLabel.Matches(labels.Set(p.Labels)) }, nil
}

// Render returns what each of these pools must run; had is by pool.
func Render(set *v1beta1.YurtAppSet, pools []*v1beta2.NodePool, had map[string]Had) []Wanted {
	r, all := newRenderer(set), make([]Wanted, len(pools))
	for i, pool := range pools {
		all[i] = r.render(pool, had[pool.Name])
	}
	return all
}

// renderer renders the pools one by one.
type renderer struct {
	set *v1beta1.YurtAppSet
	// tweaks returns a pool's tweaks; bad says why they can't be found.
	tweaks func(*v1beta2.NodePool) []int
	bad    error
}

func newRenderer(set *v1beta1.YurtAppSet) renderer {
	tweaks, bad := tweaksByPool(set.Spec.Workload.WorkloadTweaks)
	return renderer{set, tweaks, bad}
}

func (r renderer) render(pool *v1beta2.NodePool, had Had) Wanted {
	w := Wanted{Pool: pool.Name, Kind: kindOf(&r.set.Spec), Name: had.Name, Err: r.bad, had: had}
	if w.Name == "" {
		w.Name = fit(r.set.Name+"-"+pool.Name, nameMax)
	}
	if r.bad == nil {
		w.Object, w.Err = render(r.set, &w, r.tweaks(pool))
	}
	if w.Err == nil {
		w.Err = w.sign()
	}
	return w
}

// sign hashes the object, and then notes on it what the next rollout must know.
func (w *Wanted) sign() (err error) {
	if w.Hash, err = hashOf(w.Object.Object); err != nil {
		return err
	}
	pods, _, err := unstructured.NestedMap(w.Object.Object, "spec", "template")
	if err != nil {
		return err
	}
	if w.PodsHash, err = hashOf(pods); err != nil {
		return err
	}
	notes := map[string]string{AnnotationPods: w.PodsHash}
	if len(w.had.Nodes) > 0 {
		notes[AnnotationNodes] = strings.Join(w.had.Nodes, " ")
		if err := prefer(w.Object.Object, w.had.Nodes); err != nil {
			return err
		}
	}
	w.Object.SetAnnotations(with(w.Object.GetAnnotations(), notes))
	w.Labels, w.Annotations = w.Object.GetLabels(), w.Object.GetAnnotations()
	return nil
}

// prefer makes a workload's Pods prefer nodes, with the least weight.
func prefer(workload map[string]any, nodes []string) error {
	path := []string{
		"spec", "template", "spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution",
	}
	terms, _, err := unstructured.NestedSlice(workload, path...)
	if err != nil {
		return err
	}
	for _, name := range nodes {
		terms = append(terms, map[string]any{"weight": int64(1), "preference": map[string]any{"matchFields": []any{
			map[string]any{"key": metav1.ObjectNameField, "operator": "In", "values": []any{name}},
		}}})
	}
	return unstructured.SetNestedSlice(workload, terms, path...)
}

// tweaksByPool returns a function that finds a pool's tweaks, as ordered indices into tweaks. tweaksByPool fails if a selector
// can't be used, because then nobody knows which pools that tweak is for.
func tweaksByPool(tweaks []v1beta1.WorkloadTweak) (func(*v1beta2.NodePool) []int, error) {
	byName, bySelector := make(map[string][]int), make(map[int]func(*v1beta2.NodePool) bool)
	var bad error
	for i := range tweaks {
		for _, name := range tweaks[i].Pools {
			byName[name] = append(byName[name], i)
		}
		if tweaks[i].NodePoolSelector == nil {
			continue
		}
		var err error
		if bySelector[i], err = matcher(tweaks[i].NodePoolSelector, nil); err != nil {
			bad = errors.Join(bad, fmt.Errorf("workloadTweaks[%d]: %w", i, err))
		}
	}
	return func(pool *v1beta2.NodePool) []int {
		found := slices.Clone(byName[pool.Name])
		for i, matches := range bySelector {
			if matches(pool) {
				found = append(found, i)
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}, bad
}

func render(set *v1beta1.YurtAppSet, w *Wanted, tweaks []int) (*unstructured.Unstructured, error) {
	d, err := fromTemplate(&set.Spec.Workload.WorkloadTemplate)
	if err != nil {
		return nil, err
	}
	d.identify(set, w)
	for _, i := range tweaks {
		if err := d.tweak(&set.Spec.Workload.WorkloadTweaks[i].Tweaks, w.Pool); err != nil {
			return nil, fmt.Errorf("workloadTweaks[%d]: %w", i, err)
		}
	}
	d.identify(set, w)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d.object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// draft is a workload in the making. Its pointers point into object.
type draft struct {
	object   client.Object
	replicas **int32
	selector **metav1.LabelSelector
	pods     *corev1.PodTemplateSpec
}

func draftOf(object client.Object) *draft {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &draft{object, &o.Spec.Replicas, &o.Spec.Selector, &o.Spec.Template}
	case *appsv1.StatefulSet:
		return &draft{object, &o.Spec.Replicas, &o.Spec.Selector, &o.Spec.Template}
	default:
		panic(fmt.Sprintf("a workload is no %T", object))
	}
}

func fromTemplate(t *v1beta1.WorkloadTemplate) (*draft, error) {
	var meta metav1.ObjectMeta
	var object client.Object
	switch {
	case t.DeploymentTemplate != nil:
		meta = t.DeploymentTemplate.ObjectMeta
		object = &appsv1.Deployment{TypeMeta: typeOf("Deployment"), Spec: *t.DeploymentTemplate.Spec.DeepCopy()}
	case t.StatefulSetTemplate != nil:
		meta = t.StatefulSetTemplate.ObjectMeta
		object = &appsv1.StatefulSet{TypeMeta: typeOf("StatefulSet"), Spec: *t.StatefulSetTemplate.Spec.DeepCopy()}
	default:
		return nil, errors.New("workloadTemplate is neither a deploymentTemplate nor a statefulSetTemplate")
	}
	object.SetLabels(maps.Clone(meta.Labels))
	object.SetAnnotations(maps.Clone(meta.Annotations))
	return draftOf(object), nil
}

func kindOf(spec *v1beta1.YurtAppSetSpec) string {
	if spec.Workload.WorkloadTemplate.StatefulSetTemplate != nil {
		return "StatefulSet"
	}
	return "Deployment"
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind}
}

// identify sets the workload's name, owner, labels and selector, and the pool in which it runs. It runs before the tweaks,
// which may build on these, and again after them. The selector is the one that OpenYurt's controller uses, so that each
// controller can take over the other's workloads.
func (d *draft) identify(set *v1beta1.YurtAppSet, w *Wanted) {
	o := d.object
	o.SetName(w.Name)
	o.SetNamespace(set.Namespace)
	o.SetOwnerReferences([]metav1.OwnerReference{
		*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("YurtAppSet")),
	})
	name := labelValue(set.Name)
	o.SetLabels(with(o.GetLabels(), map[string]string{LabelYurtAppSet: name, LabelOpenYurt: name, LabelPoolName: w.Pool}))
	selects := map[string]string{LabelPoolName: w.Pool}
	if *d.selector == nil {
		*d.selector = &metav1.LabelSelector{}
	}
	(*d.selector).MatchLabels = with((*d.selector).MatchLabels, selects)
	d.pods.Labels = with(d.pods.Labels, selects)
	if w.had.Revision != "" {
		o.SetLabels(with(o.GetLabels(), map[string]string{LabelRevision: w.had.Revision}))
	}
	if w.had.PodRevision != "" {
		d.pods.Labels = with(d.pods.Labels, map[string]string{LabelRevision: w.had.PodRevision})
	}
	d.pods.Spec.NodeSelector = with(d.pods.Spec.NodeSelector, map[string]string{edge.LabelNodePool: w.Pool})
}

func with(m, more map[string]string) map[string]string {
	if m == nil {
		m = make(map[string]string, len(more))
	}
	maps.Copy(m, more)
	return m
}

// tweak applies the tweaks in the order of their fields.
func (d *draft) tweak(t *v1beta1.Tweaks, pool string) error {
	if t.Replicas != nil {
		replicas := *t.Replicas
		*d.replicas = &replicas
	}
	for _, image := range t.ContainerImages {
		if !d.setImage(image) {
			return fmt.Errorf("containerImages: there is no container %q", image.Name)
		}
	}
	if len(t.Patches) == 0 {
		return nil
	}
	content, err := json.Marshal(d.object)
	if err != nil {
		return err
	}
	if content, err = patch(content, t.Patches, pool); err != nil {
		return err
	}
	var patched client.Object = &appsv1.Deployment{}
	if _, ok := d.object.(*appsv1.StatefulSet); ok {
		patched = &appsv1.StatefulSet{}
	}
	strict := json.NewDecoder(bytes.NewReader(content))
	strict.DisallowUnknownFields()
	if err := strict.Decode(patched); err != nil {
		return fmt.Errorf("the patched object is not a valid %s: %w", d.object.GetObjectKind().GroupVersionKind().Kind, err)
	}
	*d = *draftOf(patched)
	return nil
}

func (d *draft) setImage(image v1beta1.ContainerImage) bool {
	found := false
	for _, containers := range [][]corev1.Container{d.pods.Spec.InitContainers, d.pods.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == image.Name {
				containers[i].Image, found = image.TargetImage, true
			}
		}
	}
	return found
}

// patch applies all patches, or names the first that can't be applied.
func patch(content []byte, patches []v1beta1.Patch, pool string) ([]byte, error) {
	operations := make(jsonpatch.Patch, 0, len(patches))
	for i := range patches {
		o, err := operationOf(&patches[i], pool)
		if err != nil {
			return nil, wrong(i, &patches[i], err)
		}
		operations = append(operations, o...)
	}
	patched, err := operations.Apply(content)
	if err == nil {
		return patched, nil
	}
	for i := range operations { // find out which of them failed
		if content, err = operations[i : i+1].Apply(content); err != nil {
			return nil, wrong(i, &patches[i], err)
		}
	}
	return content, nil
}

func wrong(i int, p *v1beta1.Patch, err error) error {
	return fmt.Errorf("patches[%d] (%s %s): %w", i, p.Operation, p.Path, err)
}

// operationOf returns a patch of one operation.
func operationOf(p *v1beta1.Patch, pool string) (jsonpatch.Patch, error) {
	operation := map[string]any{"op": string(p.Operation), "path": p.Path}
	if p.Operation != v1beta1.OperationRemove {
		if p.Value == nil || len(p.Value.Raw) == 0 {
			return nil, errors.New("value is missing")
		}
		var value any
		d := json.NewDecoder(bytes.NewReader(p.Value.Raw))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		operation["value"] = fill(value, pool)
	}
	encoded, err := json.Marshal([]any{operation})
	if err != nil {
		return nil, err
	}
	return jsonpatch.DecodePatch(encoded)
}

// fill replaces the variables by the pool's name in all strings of a value, names of fields among them.
func fill(value any, pool string) any {
	switch v := value.(type) {
	case string:
		return filled(v, pool)
	case []any:
		for i := range v {
			v[i] = fill(v[i], pool)
		}
	case map[string]any:
		all := make(map[string]any, len(v))
		for k := range v {
			all[filled(k, pool)] = fill(v[k], pool)
		}
		return all
	}
	return value
}

func filled(text, pool string) string {
	for _, variable := range poolVariables {
		text = strings.ReplaceAll(text, variable, pool)
	}
	return text
}

func hashOf(content any) (string, error) {
	encoded, err := json.Marshal(content) // sorts the keys of maps
	if err != nil {
		return "", err
	}
	return digest(encoded, 16), nil
}

// digest returns the first characters of a hash.
func digest(content []byte, length int) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:length]
}

// labelValue shortens a name to the length of a label's value.
func labelValue(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	return fit(name, longest)
}

// fit returns a name of at most longest characters without dots, because a StatefulSet's name can't have dots. It returns the
// name itself if that fits, or else its beginning and a hash.
func fit(name string, longest int) string {
	const hashLength = 8
	if len(name) <= longest && !strings.Contains(name, ".") {
		return name
	}
	short := strings.ReplaceAll(name, ".", "-")
	short = strings.TrimRight(short[:min(len(short), longest-hashLength-1)], "-")
	return short + "-" + digest([]byte(name), hashLength)
}
