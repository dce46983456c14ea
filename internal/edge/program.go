package edge

import "strings"

// AnnotationProgram is on a Node. The node's hub writes there which program it is: see HubProgram.
const AnnotationProgram = "openyurt.io/hub-program"

// HubProgram is what a hub reports of its program. It can be compared.
type HubProgram struct {
	// Version is the release that it is of.
	Version string
	// Upgradable says that the node accepts programs from the cloud.
	Upgradable bool
}

const upgradable = "/upgradable"

// String returns "VERSION" or "VERSION/upgradable". ParseHubProgram reads it.
func (p HubProgram) String() string {
	if p.Upgradable {
		return p.Version + upgradable
	}
	return p.Version
}

// ParseHubProgram reads what String wrote; it returns false for anything else. Any program of the node may have written it.
func ParseHubProgram(text string) (HubProgram, bool) {
	version, takes := strings.CutSuffix(text, upgradable)
	if !IsVersion(version) {
		return HubProgram{}, false
	}
	return HubProgram{Version: version, Upgradable: takes}, true
}
