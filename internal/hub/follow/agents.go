package follow

import (
	"net/http"
	"strconv"
	"strings"
)

// header asks the hub to keep what a request reads, whatever program it comes from.
const header = "Edge-Cache"

// Agents says which programs' reads are kept.
type Agents struct {
	all   bool
	names map[string]bool
}

// NewAgents returns Agents of programs' names, as their User-Agent begins with them ("kubelet/v1.36.0 (linux/amd64)"); "*"
// is all programs. Upper and lower case are the same.
func NewAgents(names []string) Agents {
	a := Agents{names: map[string]bool{}}
	for _, name := range names {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" { // no name at all is nobody's
			a.all = a.all || name == "*"
			a.names[name] = true
		}
	}
	return a
}

// Match reports whether what a request reads is to be kept. The header is the hub's and goes no further.
func (a Agents) Match(r *http.Request) bool {
	asked, err := strconv.ParseBool(r.Header.Get(header))
	r.Header.Del(header)
	if asked && err == nil || a.all {
		return true
	}
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	return a.names[strings.ToLower(name)]
}
