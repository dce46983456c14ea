package coordinator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

// annotationShipment on a coordinator's Pod is the mark of the shipment that it was made from.
const annotationShipment = "openyurt.io/coordinator-shipment"

// shipment is the PodSpec of a pool's coordinator. The YurtAppSet stores which shipment each pool has, so a pool can keep its own
// while others get a new one.
type shipment struct {
	// spec is a PodSpec in JSON, with the placeholder for the pool's name.
	spec string
	// mark is a digest of it.
	mark string
}

// shipmentOf returns what a pool is to have.
func shipmentOf(c Config, p Wanted) (shipment, error) {
	spec, err := canonical(podSpec(c, p))
	if err != nil {
		return shipment{}, fmt.Errorf("pool %s: %w", p.Pool, err)
	}
	sum := sha256.Sum256([]byte(spec))
	return shipment{spec, hex.EncodeToString(sum[:8])}, nil
}

// canonical returns the same text for equal PodSpecs, whoever has written them.
func canonical(spec corev1.PodSpec) (string, error) {
	content, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	var again corev1.PodSpec
	if err := json.Unmarshal(content, &again); err != nil {
		return "", err
	}
	content, err = json.Marshal(again)
	return string(content), err
}

// image returns the image that it runs.
func (s shipment) image() string {
	var spec corev1.PodSpec
	if json.Unmarshal([]byte(s.spec), &spec) != nil {
		return ""
	}
	return imageOf(&corev1.Pod{Spec: spec})
}

// made reports whether a Pod was made from it.
func (s shipment) made(pod *corev1.Pod) bool {
	return pod != nil && s.mark != "" && pod.Annotations[annotationShipment] == s.mark
}

// shipped returns the shipment that each pool has in a YurtAppSet of coordinators. It leaves out tweaks that somebody has broken.
func shipped(app *v1beta1.YurtAppSet) map[edge.PoolName]shipment {
	all := make(map[edge.PoolName]shipment)
	if app == nil || app.Spec.Workload.WorkloadTemplate.DeploymentTemplate == nil {
		return all
	}
	for i := range app.Spec.Workload.WorkloadTweaks {
		tweak := &app.Spec.Workload.WorkloadTweaks[i]
		if s, err := tweaked(app, &tweak.Tweaks); err == nil {
			for _, pool := range tweak.Pools {
				all[edge.PoolName(pool)] = s
			}
		}
	}
	return all
}

// shippedTo returns what one pool has been given.
func shippedTo(app *v1beta1.YurtAppSet, pool edge.PoolName) (shipment, bool) {
	if app == nil || app.Spec.Workload.WorkloadTemplate.DeploymentTemplate == nil {
		return shipment{}, false
	}
	for i := range app.Spec.Workload.WorkloadTweaks {
		if tweak := &app.Spec.Workload.WorkloadTweaks[i]; slices.Contains(tweak.Pools, string(pool)) {
			s, err := tweaked(app, &tweak.Tweaks)
			return s, err == nil
		}
	}
	return shipment{}, false
}

// tweaked returns what the template becomes by tweaks, without a pool's name.
func tweaked(app *v1beta1.YurtAppSet, tweaks *v1beta1.Tweaks) (shipment, error) {
	d := appsv1.Deployment{Spec: *app.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec.DeepCopy()}
	for _, image := range tweaks.ContainerImages {
		for i := range d.Spec.Template.Spec.Containers {
			if c := &d.Spec.Template.Spec.Containers[i]; c.Name == image.Name {
				c.Image = image.TargetImage
			}
		}
	}
	content, err := json.Marshal(d)
	if err != nil {
		return shipment{}, err
	}
	operations := make([]map[string]any, 0, len(tweaks.Patches))
	for _, p := range tweaks.Patches {
		operation := map[string]any{"op": string(p.Operation), "path": p.Path}
		if p.Value != nil {
			operation["value"] = json.RawMessage(p.Value.Raw)
		}
		operations = append(operations, operation)
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return shipment{}, err
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return shipment{}, err
	}
	if content, err = patch.Apply(content); err != nil {
		return shipment{}, err
	}
	d = appsv1.Deployment{}
	if err := json.Unmarshal(content, &d); err != nil {
		return shipment{}, err
	}
	spec, err := canonical(d.Spec.Template.Spec)
	return shipment{spec, d.Spec.Template.Annotations[annotationShipment]}, err
}

// tweaksTo returns the tweaks that turn the template into the Pod of a pool with this shipment. The label names the Pod's pool,
// whoever makes the Pod. All paths are below /spec, because OpenYurt's webhook tries each tweak on a Deployment that has only the
// template's spec. The tweaks contain only differences from the template: full specs for some thousand pools would be too large
// for etcd.
func tweaksTo(template string, slot edge.Slot, s shipment) (v1beta1.Tweaks, error) {
	var t v1beta1.Tweaks
	add := func(operation v1beta1.Operation, path string, value any) error {
		p := v1beta1.Patch{Operation: operation, Path: path}
		if operation != v1beta1.OperationRemove {
			content, err := json.Marshal(value)
			if err != nil {
				return err
			}
			p.Value = &apiextensionsv1.JSON{Raw: content}
		}
		t.Patches = append(t.Patches, p)
		return nil
	}
	label := strings.ReplaceAll(edge.LabelNodePool, "/", "~1")
	if err := add(v1beta1.OperationAdd, "/spec/template/metadata/labels/"+label, placeholder); err != nil {
		return t, err
	}
	marks := map[string]string{annotationShipment: s.mark}
	if err := add(v1beta1.OperationAdd, "/spec/template/metadata/annotations", marks); err != nil {
		return t, err
	}
	var have, want members
	if err := json.Unmarshal([]byte(template), &have); err != nil {
		return t, err
	}
	if err := json.Unmarshal([]byte(s.spec), &want); err != nil {
		return t, err
	}
	if err := differences("/spec/template/spec", have, want, add); err != nil {
		return t, err
	}
	return t, add(v1beta1.OperationReplace, "/spec/template/spec/volumes/0/secret/secretName",
		placeholder.CoordinatorSecretIn(slot))
}

// members are those of an object in JSON.
type members map[string]json.RawMessage

// differences adds the operations by which one PodSpec becomes another: by its fields, and by those of its container.
func differences(
	path string, have, want members, add func(operation v1beta1.Operation, path string, value any) error,
) error {
	const containers = "containers"
	keys := maps.Clone(have)
	maps.Copy(keys, want)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := have[key]
		is, has := want[key]
		var err error
		switch {
		case bytes.Equal(was, is):
		case !has:
			err = add(v1beta1.OperationRemove, path+"/"+key, nil)
		case !had:
			err = add(v1beta1.OperationAdd, path+"/"+key, is)
		case key == containers:
			var before, after []members
			if json.Unmarshal(was, &before) == nil && json.Unmarshal(is, &after) == nil && len(before) == 1 && len(after) == 1 {
				err = differences(path+"/"+containers+"/0", before[0], after[0], add)
				break
			}
			err = add(v1beta1.OperationReplace, path+"/"+key, is)
		default:
			err = add(v1beta1.OperationReplace, path+"/"+key, is)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
