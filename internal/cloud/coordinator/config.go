package coordinator

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
)

// FieldOwner is the field manager of all writes.
const FieldOwner = "coordinator-controller"

const (
	// DefaultResync is how often a pool is checked in full without any event; jitter adds up to half. The check restores what
	// somebody removed by hand.
	DefaultResync = 10 * time.Minute

	// labelManagedBy is on every object that is made here; edge.LabelNodePool is also on the objects of a pool.
	labelManagedBy = "app.kubernetes.io/managed-by"

	// annotationCertsHash on a coordinator's Pod is a hash of its Secret. When it changes, kubelet reads the Secret at once.
	annotationCertsHash = "openyurt.io/certs-hash"

	// annotationGranted on a coordinator's Secret is a digest of the granted rights. It saves granting the rights of a thousand
	// pools again after each start of this program.
	annotationGranted = "openyurt.io/coordinator-grants"

	// annotationRekey on a Secret with keys for kubelets is the spec.rekey that they were made for.
	annotationRekey = "openyurt.io/coordinator-rekey"

	// annotationDigest on a coordinator's Pod is a digest of what it was made from.
	annotationDigest = "openyurt.io/coordinator-settings"

	// annotationPod on a coordinator's Secret is the UID of the Pod that its certificate is for.
	annotationPod = "openyurt.io/coordinator-pod"
	// annotationGeneration there is the edge.Generation of that certificate.
	annotationGeneration = "openyurt.io/coordinator-generation"
)

// Program says what coordinators run.
type Program struct {
	// Image is the repository of the coordinators' image, without a tag. The tag is a version.CoordinatorTag.
	Image string
	// Release of ours is run; empty means this program's own.
	Release string
	// Kubernetes is the version that is run if a YurtCoordinator names none; empty means the one that this program is made from.
	Kubernetes string
	// Digests of images, as sha256:…, by their tags. An image without one is known by its tag alone.
	Digests map[string]string
	// PullPolicy is the image's; empty means IfNotPresent.
	PullPolicy corev1.PullPolicy
	// PullSecrets are Secrets in kube-system for pulling the image.
	PullSecrets []string
	// Rollout says how a change of what coordinators run reaches them.
	Rollout Rollout
	// Lives are the lives of the certificates.
	Lives certs.Lives
}

// Config is what a Reconciler needs.
type Config struct {
	// Client writes, and reads from the manager's cache, which needs the options of Cached.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Events receives the Events on YurtCoordinators, and bounds their rate.
	Events events.EventRecorder
	// Clock dates certificates and conditions; nil means the real clock.
	Clock clock.PassiveClock

	Program
	// KubeletAuthority returns the PEM bundle that verifies kubelets' serving certificates. Nil means that coordinators verify a
	// kubelet only by the certificate that its node's hub reports.
	KubeletAuthority func() ([]byte, error)
	// ConstrainedImpersonation says that the API server constrains impersonation; see forwarding.Objects.
	ConstrainedImpersonation bool
	// Settings are what holds where no PoolSettings says something else.
	Settings v1alpha1.CoordinatorSettings
	// PoolSettings says that there are PoolSettings to go by. The cache must then have them.
	PoolSettings bool
	// Resync is how often everything is checked; zero means DefaultResync.
	Resync time.Duration
}

func (c Config) completed() Config {
	c.Lives, c.Rollout = c.Lives.Completed(), c.Rollout.completed()
	is := version.Get()
	c.Release, c.Kubernetes = cmp.Or(c.Release, is.Version), cmp.Or(c.Kubernetes, is.Kubernetes)
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

// poolOf returns the pool of a Node or of a pool's object.
func poolOf(obj client.Object) edge.PoolName {
	return edge.PoolName(obj.GetLabels()[edge.LabelNodePool])
}
