package edge

// The annotations of a coordinator's audit lines, beside Kubernetes' own.
const (
	// AnnotationRefused says why a caller who gets a 401 was not recognized, and which name the caller claims.
	AnnotationRefused = "openyurt.io/refused"
	// AnnotationSuppressed counts the refusals since the last audit line about a refusal; those have no line of their own.
	AnnotationSuppressed = "openyurt.io/suppressed"
)
