package edge

// The annotations of a coordinator's audit lines, beside Kubernetes' own.
const (
	// AnnotationRefused is why a caller who is answered 401 was not recognized, and what name he claims.
	AnnotationRefused = "openyurt.io/refused"
	// AnnotationSuppressed counts the refusals since the last line about one, which have none of their own.
	AnnotationSuppressed = "openyurt.io/suppressed"
)
