package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestRankNeighbours: the nodes of a pool spread over those that relay, and keep to their choice when another comes or goes.
func TestRankNeighbours(t *testing.T) {
	var all []Neighbour
	for i := range 10 {
		all = append(all, Neighbour{NodeName(fmt.Sprintf("p1-n%d", i)), netip.MustParseAddrPort("10.0.0.1:1")})
	}
	const nodes = 1000
	chosen := map[NodeName]int{}
	moved := 0
	for i := range nodes {
		of := NodeName(fmt.Sprintf("cut-%d", i))
		RankNeighbours(of, all)
		first := all[0].Name
		chosen[first]++
		gone := slices.Clone(all[:9])
		slices.Reverse(gone)
		if RankNeighbours(of, gone); gone[0].Name != first {
			moved++
		}
	}
	if len(chosen) != len(all) || moved != 0 {
		t.Errorf("%v were chosen; %d nodes chose another though theirs was there still", chosen, moved)
	}
	for name, n := range chosen {
		if n < nodes/20 || n > nodes/5 {
			t.Errorf("%s was chosen by %d of %d nodes", name, n, nodes)
		}
	}
}
