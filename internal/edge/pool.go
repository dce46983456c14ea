package edge

// Pool resources: what the nodes of a pool share.
const (
	// AnnotationAppliedRevisions is on LeaseInformerSync. It is a JSON object: the cloud's revision up to which the
	// coordinator has each pool resource, applied and not merely seen, by its name as in "endpointslices.discovery.k8s.io".
	AnnotationAppliedRevisions = "openyurt.io/applied-revisions"

	// PathMirror is where a coordinator serves the pool's resources with the cloud's revisions.
	PathMirror = "/mirror/v1"

	// MirrorCoreGroup stands for the core group, whose name is empty, in paths below PathMirror.
	MirrorCoreGroup = "core"
)

// Service topology.
const (
	// AnnotationTopologyKeys on a Service says which of its endpoints a node's clients see.
	AnnotationTopologyKeys = "openyurt.io/topologyKeys"

	// TopologyNodePool, TopologyHostname and TopologyZone are its values: those in the node's pool, on the node itself,
	// in the node's zone.
	TopologyNodePool = "openyurt.io/nodepool"
	TopologyHostname = "kubernetes.io/hostname"
	TopologyZone     = "kubernetes.io/zone"
)
