package cache

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// header asks the hub to keep what a request reads, whichever program sends it.
const header = "Edge-Cache"

// Agents tells which programs' reads the hub keeps.
type Agents struct{ now atomic.Pointer[agents] }

type agents struct {
	all   bool
	names map[string]bool
}

// NewAgents returns Agents that match programs by name: the part of the User-Agent before the first slash. The name "*" matches
// all programs. Case does not matter.
func NewAgents(names []string) *Agents {
	a := &Agents{}
	a.Set(names)
	return a
}

// Set replaces the list of programs, from the next request on.
func (a *Agents) Set(names []string) {
	next := &agents{names: map[string]bool{}}
	for _, name := range names {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" { // "" would match requests without User-Agent
			next.all = next.all || name == "*"
			next.names[name] = true
		}
	}
	a.now.Store(next)
}

// Match reports whether to keep what a request reads. It removes the header, which is for the hub alone.
func (a *Agents) Match(r *http.Request) bool {
	now := a.now.Load()
	asked, err := strconv.ParseBool(r.Header.Get(header))
	r.Header.Del(header)
	if asked && err == nil || now.all {
		return true
	}
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	return now.names[strings.ToLower(name)]
}
