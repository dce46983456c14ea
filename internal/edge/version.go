package edge

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// AnnotationHubVersion is the release of a node's hub. On the coordinator's copy of the node's Lease it is one version, which
// never reaches the cloud. On the Lease that ReportLease names it has the versions of all nodes' hubs, in the form of
// JoinVersions.
const AnnotationHubVersion = "openyurt.io/hub-version"

// maxVersion bounds a version, in bytes.
const maxVersion = 64

var versionText = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// IsVersion reports whether a text is a version in the form of AnnotationHubVersion. Any program of a node may have written it.
func IsVersion(text string) bool { return len(text) <= maxVersion && versionText.MatchString(text) }

// JoinVersions writes the versions of nodes' hubs as the value of an annotation. Each version comes once, sorted, with its nodes:
// "v0.2.0=n1;n2,v0.3.0=n3". SplitVersions reads it.
func JoinVersions(all map[NodeName]string) string {
	nodes := map[string][]string{}
	for n, v := range all {
		nodes[v] = append(nodes[v], string(n))
	}
	var texts []string
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[v])
		texts = append(texts, v+"="+strings.Join(nodes[v], ";"))
	}
	return strings.Join(texts, ",")
}

// SplitVersions reads what JoinVersions wrote. It leaves out what it can't read.
func SplitVersions(value string) map[NodeName]string {
	all := map[NodeName]string{}
	for text := range strings.SplitSeq(value, ",") {
		version, nodes, _ := strings.Cut(text, "=")
		if !IsVersion(version) {
			continue
		}
		for n := range strings.SplitSeq(nodes, ";") {
			if n != "" {
				all[NodeName(n)] = version
			}
		}
	}
	return all
}
