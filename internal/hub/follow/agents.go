package follow

import (
	"net/http"
	"strconv"
	"strings"
)

// header asks the hub to keep what a request reads, whichever program sends it.
const header = "Edge-Cache"

// Agents says which programs' reads are kept.
type Agents struct {
	all   bool
	names map[string]bool
}

// NewAgents returns Agents for programs by the names with which their User-Agent begins ("kubelet/v1.36.0 (linux/amd64)"); "*"
// means all programs. Case does not matter.
func NewAgents(names []string) Agents {
	a := Agents{names: map[string]bool{}}
	for _, name := range names {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" { // "" would match requests without User-Agent
			a.all = a.all || name == "*"
			a.names[name] = true
		}
	}
	return a
}

// Match reports whether to keep what a request reads. It removes the header, which is for the hub alone.
func (a Agents) Match(r *http.Request) bool {
	asked, err := strconv.ParseBool(r.Header.Get(header))
	r.Header.Del(header)
	if asked && err == nil || a.all {
		return true
	}
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	return a.names[strings.ToLower(name)]
}
