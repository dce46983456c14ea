package coordinator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// FieldOwner is the field manager of all writes.
const FieldOwner = "coordinator-controller"

const (
	// DefaultResync is how often everything of a pool is looked at when nothing seems to have happened, jittered up to half as
	// much again: it repairs what somebody removed by hand.
	DefaultResync = 10 * time.Minute

	// labelManagedBy is on every object that is made here, edge.LabelNodePool on those of a pool.
	labelManagedBy = "app.kubernetes.io/managed-by"

	// annotationCertsHash on a coordinator's Pod says what its Secret has, so that kubelet looks at it at once.
	annotationCertsHash = "openyurt.io/certs-hash"

	// annotationGranted on a coordinator's Secret is a digest of the rights that have been given, so that a start does not
	// give those of a thousand pools again.
	annotationGranted = "openyurt.io/coordinator-grants"

	// annotationPod on a coordinator's Secret is the UID of the Pod that its certificate was made for.
	annotationPod = "openyurt.io/coordinator-pod"
)

// Config is what a Reconciler needs.
type Config struct {
	// Client reads from the manager's cache, which needs the options of Cached, and writes.
	Client client.Client
	// Reader asks the API server itself.
	Reader client.Reader
	// Events takes the Events on YurtCoordinators. It bounds their rate.
	Events events.EventRecorder
	// Clock dates certificates and conditions; nil: the real one.
	Clock clock.PassiveClock

	// Image is the repository of the coordinator's image, without a tag. The tag is the version.
	Image string
	// Version is run where a YurtCoordinator names none.
	Version string
	// PullPolicy of the image; empty: IfNotPresent.
	PullPolicy corev1.PullPolicy
	// PullSecrets are Secrets in kube-system that the image is pulled with.
	PullSecrets []string
	// KubeletAuthority returns the bundle, in PEM, by which coordinators verify kubelets' serving certificates; nil: they
	// don't.
	KubeletAuthority func() ([]byte, error)
	// ExtraArgs are added to the coordinator's flags.
	ExtraArgs []string

	// Lives are those of the certificates.
	Lives certs.Lives
	// Resync is how often everything is looked at; zero: DefaultResync.
	Resync time.Duration
}

func (c Config) completed() Config {
	c.Lives = c.Lives.Completed()
	if c.Resync == 0 {
		c.Resync = DefaultResync
	}
	if c.PullPolicy == "" {
		c.PullPolicy = corev1.PullIfNotPresent
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// image is what a version runs.
func (c Config) image(version string) string {
	if version == "" {
		version = c.Version
	}
	return c.Image + ":" + version
}

// poolOf says which pool an object of a pool, or a Node, is of.
func poolOf(obj client.Object) edge.PoolName {
	return edge.PoolName(obj.GetLabels()[edge.LabelNodePool])
}
