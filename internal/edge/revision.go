package edge

import (
	"fmt"
	"strconv"
)

// Revision is a resourceVersion of the cloud as a number. It orders all writes of one cluster: Kubernetes guarantees that since
// 1.35 (KEP-5504), and API servers over etcd always did. 0 is the beginning, before any write.
type Revision uint64

// ParseRevision reads a resourceVersion. It fails on what is not a positive decimal number.
func ParseRevision(resourceVersion string) (Revision, error) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("resourceVersion %q is no revision: it must be a positive decimal number", resourceVersion)
	}
	return Revision(n), nil
}

// String returns the resourceVersion. For 0 it is "", as in an object that was never stored.
func (r Revision) String() string {
	if r == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(r), 10)
}
