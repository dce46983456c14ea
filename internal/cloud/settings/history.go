package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// annotationHistory on a pool's ConfigMap has a record, in JSON.
const annotationHistory = "openyurt.io/settings-history"

// maxHistory is how many generations are remembered: nodes may have been cut off for as many changes and still be counted.
const maxHistory = 8

// record is what a pool's hubs were told: the last few generations, the newest first.
type record []generation

// generation is one of them, and of what it was made.
type generation struct {
	Generation int64            `json:"generation"`
	From       map[string]int64 `json:"from,omitempty"`
}

// newest returns the newest generation; zero means that the pool was told nothing.
func (r record) newest() generation {
	if len(r) == 0 {
		return generation{}
	}
	return r[0]
}

// of returns the generation of a PoolSettings of which the pool's generation n was made; 0 if of none, or if that is not known.
func (r record) of(settings string, n int64) int64 {
	for _, g := range r {
		if g.Generation == n {
			return g.From[settings]
		}
	}
	return 0
}

// recorded reads a pool's record from its ConfigMap. If it can't read the record, or the record is older than the pool's present
// generation, it returns that generation alone, because its number must not be used again.
func recorded(m *corev1.ConfigMap) record {
	var r record
	if json.Unmarshal([]byte(m.Annotations[annotationHistory]), &r) != nil {
		r = nil
	}
	said, err := strconv.ParseInt(m.Data[edge.SettingsGeneration], 10, 64)
	if err == nil && said > r.newest().Generation {
		r = record{{Generation: said}}
	}
	return r
}

// next returns the record after the pool was told t. The parameter had is the configuration that the pool was told before. Only
// a different configuration gets a new generation, because hubs use nothing else of t.
func (r record) next(had string, t told) record {
	n := generation{Generation: r.newest().Generation, From: t.From}
	if n.Generation > 0 && had == t.Configuration {
		return append(record{n}, r[1:]...)
	}
	n.Generation++
	next := append(record{n}, r...)
	return next[:min(len(next), maxHistory)]
}

// text lists for people of what a generation is made.
func (g generation) text() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(g.From)) {
		all = append(all, fmt.Sprintf("%s (generation %d)", name, g.From[name]))
	}
	return strings.Join(all, ", ")
}
