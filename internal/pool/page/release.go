package page

import utilversion "k8s.io/apimachinery/pkg/util/version"

// Apart is how the release of a hub differs from that of the coordinator.
type Apart string

// Values of Apart.
const (
	Same  Apart = ""
	Older Apart = "older than the coordinator"
	Newer Apart = "newer than the coordinator"
	// TooOld and TooNew are further apart than works: see docs/versions.md.
	TooOld Apart = "too old for the coordinator"
	TooNew Apart = "too new for the coordinator"
)

// apart compares a hub's release with the coordinator's. The two work together if their minor versions differ by at most one.
// apart returns Same for a release that can't be read.
func apart(hub, coordinator string) Apart {
	h, err := utilversion.ParseSemantic(hub)
	if err != nil {
		return Same
	}
	c, err := utilversion.ParseSemantic(coordinator)
	if err != nil {
		return Same
	}
	minors := int(h.Minor()) - int(c.Minor())
	if h.Major() != c.Major() {
		minors = 2 * (int(h.Major()) - int(c.Major()))
	}
	switch {
	case minors < -1:
		return TooOld
	case minors > 1:
		return TooNew
	case h.LessThan(c):
		return Older
	case c.LessThan(h):
		return Newer
	}
	return Same
}

// tone says how bad it is.
func (a Apart) tone() Tone {
	switch a {
	case TooOld, TooNew:
		return Bad
	case Older, Newer:
		return Warn
	case Same:
	}
	return ""
}
