package edge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AnnotationTraffic says what hubs have carried over their nodes' links to the cloud. On the coordinator's copy of a node's Lease
// it is one Traffic.String, which never reaches the cloud. On the Lease that ReportLease names it has the traffic of all nodes,
// in the form of JoinTraffic.
const AnnotationTraffic = "openyurt.io/cloud-traffic"

// Traffic is what a hub has carried over its node's link to the cloud since it started, in bytes of TCP's payload. TLS counts,
// the headers of TCP and IP do not.
type Traffic struct {
	Sent     uint64    `json:"sentBytes"`
	Received uint64    `json:"receivedBytes"`
	Since    time.Time `json:"since"`
}

// String returns "sent/received/since", with the time in seconds since 1970. ParseTraffic reads it.
func (t Traffic) String() string { return fmt.Sprintf("%d/%d/%d", t.Sent, t.Received, t.Since.Unix()) }

// ParseTraffic reads what String wrote. It returns false for anything else.
func ParseTraffic(value string) (Traffic, bool) {
	var t Traffic
	var since int64
	if n, err := fmt.Sscanf(value, "%d/%d/%d", &t.Sent, &t.Received, &since); n != 3 || err != nil || since < 0 {
		return Traffic{}, false
	}
	t.Since = time.Unix(since, 0)
	return t, t.String() == value
}

// JoinTraffic writes the traffic of nodes as the value of an annotation, sorted: "n1=1/2/3,n2=4/5/6". SplitTraffic reads it.
func JoinTraffic(all map[NodeName]Traffic) string {
	texts := make([]string, 0, len(all))
	for n, t := range all {
		texts = append(texts, string(n)+"="+t.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// SplitTraffic reads what JoinTraffic wrote. It leaves out entries that it can't read.
func SplitTraffic(value string) map[NodeName]Traffic {
	all := map[NodeName]Traffic{}
	for text := range strings.SplitSeq(value, ",") {
		name, said, _ := strings.Cut(text, "=")
		if t, ok := ParseTraffic(said); ok && name != "" {
			all[NodeName(name)] = t
		}
	}
	return all
}
