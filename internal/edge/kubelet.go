package edge

import (
	"regexp"
	"slices"
	"strings"
)

// AnnotationKubelet says how kubelets' serving certificates can be verified. On the coordinator's copy of a node's Lease it is
// one KubeletServing.String of the node's hub, which never reaches the cloud. On the Lease that ReportLease names it has the
// KubeletWay of all nodes, in the form of JoinKubelets.
const AnnotationKubelet = "openyurt.io/kubelet-serving"

// PrefixReports begins the names of annotations that later releases may add to reports. The chart's policy forwarder-writes
// accepts a few such annotations, of bounded size, so that hubs may be newer than the chart. A hub that writes a report removes
// all annotations with this prefix that it does not know.
const PrefixReports = "report.openyurt.io/"

// AnnotationsOfReports are the annotations of a report that coordinator-controller reads.
var AnnotationsOfReports = []string{AnnotationReachedNodes, AnnotationKubelet, AnnotationPoolResources}

// KubeletWay is how a coordinator verifies a node's kubelet, or why it can't.
type KubeletWay string

const (
	// KubeletPinned means that the coordinator accepts exactly the certificate that the node's hub has reported.
	KubeletPinned KubeletWay = "pinned"
	// KubeletSigned means that the cluster's authority has signed the certificate, and it is pinned as well.
	KubeletSigned KubeletWay = "signed"
	// KubeletOverdue is KubeletSigned with a certificate that has less than a tenth of its life left. kubelet has
	// serverTLSBootstrap, so it asks for the next certificate in time, but nobody approves the request.
	KubeletOverdue KubeletWay = "overdue"
	// KubeletUnapproved means that kubelet has serverTLSBootstrap, and nobody has approved its request, so it serves nothing.
	KubeletUnapproved KubeletWay = "unapproved"
	// KubeletEnded means that kubelet has serverTLSBootstrap, and its certificate has expired, so it serves nothing.
	KubeletEnded KubeletWay = "ended"
	// KubeletMissing means that kubelet's certificate, or its configuration, is not where the hub looks.
	KubeletMissing KubeletWay = "missing"
	// KubeletUnreadable means that the hub can't read or parse them.
	KubeletUnreadable KubeletWay = "unreadable"
)

// kubeletWays are all ways.
var kubeletWays = []KubeletWay{
	KubeletPinned, KubeletSigned, KubeletOverdue, KubeletUnapproved, KubeletEnded, KubeletMissing, KubeletUnreadable,
}

// Verifiable reports whether a coordinator with this report can verify the kubelet.
func (w KubeletWay) Verifiable() bool {
	return w == KubeletPinned || w == KubeletSigned || w == KubeletOverdue
}

// KubeletServing is a hub's report about its kubelet's serving certificate.
type KubeletServing struct {
	Way KubeletWay `json:"way"`
	// Digest is the certificate's SHA-256 in lower-case hex; empty unless the Way is Verifiable.
	Digest string `json:"sha256,omitempty"`
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// String returns "way" or "way/digest". ParseKubeletServing reads it.
func (s KubeletServing) String() string {
	if s.Digest == "" {
		return string(s.Way)
	}
	return string(s.Way) + "/" + s.Digest
}

// ParseKubeletServing reads what String wrote. It returns false for anything else.
func ParseKubeletServing(value string) (KubeletServing, bool) {
	way, digest, has := strings.Cut(value, "/")
	s := KubeletServing{KubeletWay(way), digest}
	if !slices.Contains(kubeletWays, s.Way) || has != s.Way.Verifiable() || has && !sha256Hex.MatchString(digest) {
		return KubeletServing{}, false
	}
	return s, true
}

// JoinKubelets writes the KubeletWay of each node as the value of an annotation, sorted: "n1=pinned,n2=signed". SplitKubelets
// reads it.
func JoinKubelets(all map[NodeName]KubeletWay) string {
	texts := make([]string, 0, len(all))
	for n, w := range all {
		texts = append(texts, string(n)+"="+string(w))
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// SplitKubelets reads what JoinKubelets wrote. It leaves out entries that it can't read.
func SplitKubelets(value string) map[NodeName]KubeletWay {
	all := map[NodeName]KubeletWay{}
	for text := range strings.SplitSeq(value, ",") {
		name, way, _ := strings.Cut(text, "=")
		if name != "" && slices.Contains(kubeletWays, KubeletWay(way)) {
			all[NodeName(name)] = KubeletWay(way)
		}
	}
	return all
}
