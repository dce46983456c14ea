package coordinator

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
)

// DefaultMaxUnavailable is the share of all pools whose coordinators may be under way at a time.
const DefaultMaxUnavailable = "10%"

// failsAfter is how long a changed coordinator may take until it is Ready. After that the rollout stops. The time begins once the
// image is pulled, if images are pulled beforehand (Rollout.PullTimeout).
const failsAfter = 2 * time.Minute

// Rollout says how a change of what coordinators run reaches them. Their YurtAppSets carry it out: see package appset.
type Rollout struct {
	// MaxUnavailable is how many pools' coordinators may be under way at a time. It is a number of at least one, or a share of
	// all pools such as 10%. Empty means DefaultMaxUnavailable.
	MaxUnavailable string
	// Settle is how long a coordinator must have been Ready before it is no longer under way.
	Settle time.Duration
	// PullTimeout is how long a node may take to pull the image of the coordinator that it is to run. Zero means that the image
	// is not pulled beforehand.
	PullTimeout time.Duration
}

// CheckRollout says what is wrong with a Rollout; nil means that it can be used.
func CheckRollout(r Rollout) error {
	r = r.completed()
	most := intstr.Parse(r.MaxUnavailable)
	n, err := intstr.GetScaledValueFromIntOrPercent(&most, 100, false)
	if err != nil || n < 1 || most.Type == intstr.String && n > 100 {
		return fmt.Errorf("at most %s coordinators are to be under way at a time: give a number from 1, or a share up to 100%%",
			r.MaxUnavailable)
	}
	if r.Settle < 0 || r.PullTimeout < 0 {
		return fmt.Errorf("coordinators are to settle for %v, and have %v for a pull: use 0 or more", r.Settle, r.PullTimeout)
	}
	return nil
}

func (r Rollout) completed() Rollout {
	r.MaxUnavailable = cmp.Or(r.MaxUnavailable, DefaultMaxUnavailable)
	return r
}

// spec returns the rollout of the coordinators' YurtAppSets. The YurtAppSets of all slots are one group, so they take turns in
// a pool: a rollout changes one of a pool's coordinators at a time.
func (r Rollout) spec() *v1beta1.Rollout {
	is := &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.Parse(r.MaxUnavailable)), Group: edge.AppCoordinator}
	if r.PullTimeout > 0 {
		is.PrePull = &v1beta1.PrePull{TimeoutSeconds: ptr.To(max(1, int32(r.PullTimeout/time.Second)))}
	}
	return is
}

// paces puts into a Deployment how its Pod is replaced, and when that counts as done or failed.
func (r Rollout) paces(d *appsv1.DeploymentSpec) {
	d.MinReadySeconds = int32(r.Settle / time.Second)
	d.ProgressDeadlineSeconds = ptr.To(d.MinReadySeconds + int32(failsAfter/time.Second))
	// The Deployment deletes the old Pod, and creates the new one without waiting until the old one has ended, because on a dead
	// node the old Pod stays for as long as its Node does. While both Pods run, hubs use the newer one, which the ConfigMap
	// names. If both are on one node, only one can listen at the port.
	d.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0)),
		},
	}
}

// image returns the image of a coordinator; kubernetes is the version that its YurtCoordinator names, or empty.
func (c Config) image(kubernetes string) string {
	if kubernetes == "" {
		kubernetes = c.Kubernetes
	}
	tag := version.CoordinatorTag(c.Release, kubernetes)
	image := c.Image + ":" + tag
	if digest := c.Digests[tag]; digest != "" {
		image += "@" + digest
	}
	return image
}

// tagOf returns the tag of an image; empty if it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

// Reasons of the condition Reconciling, besides ReasonBadSettings.
const (
	// ReasonUpToDate: the coordinator was made as its version and its settings say.
	ReasonUpToDate = "UpToDate"
	// ReasonReplacing: there is no Pod at the moment.
	ReasonReplacing = "Replacing"
	// ReasonRollingOut: the rollout of the YurtAppSet has yet to bring what its version and its settings say.
	ReasonRollingOut = "RollingOut"
	// ReasonNotStalled is one of the condition Stalled: nothing is known that somebody must mend first.
	ReasonNotStalled = "NotStalled"
)

// progress returns the condition Reconciling of a coordinator that must run. digest is of what it is to run.
func progress(slot edge.Slot, pod *corev1.Pod, digest string, bad error) finding {
	app := "kube-system/" + slot.App()
	switch {
	case bad != nil:
		return finding{OK: true, Reason: ReasonBadSettings, Message: "It stays as it is until its settings are corrected."}
	case pod == nil:
		return finding{OK: true, Reason: ReasonReplacing,
			Message: "It has no Pod. If this lasts, see the YurtAppSet " + app + "."}
	case pod.Annotations[annotationDigest] != digest:
		return finding{OK: true, Reason: ReasonRollingOut,
			Message: "It runs as before until the rollout of the YurtAppSet " + app +
				" comes to this pool. The YurtAppSet's conditions say what the rollout waits for: see docs/upgrades.md."}
	}
	return finding{Reason: ReasonUpToDate, Message: "It runs with its version and its settings."}
}
