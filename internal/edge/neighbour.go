package edge

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"
)

// Neighbour is a node whose hub relays for the pool's other hubs, and where.
type Neighbour struct {
	Name NodeName       `json:"name"`
	At   netip.AddrPort `json:"at"`
}

// RankNeighbours sorts neighbours in the order in which a node tries them. Each node has an order of its own (rendezvous
// hashing), so that the nodes of a pool spread over the neighbours. If a neighbour comes or goes, the others keep their order.
func RankNeighbours(of NodeName, all []Neighbour) {
	type weighed struct {
		weight [sha256.Size]byte
		is     Neighbour
	}
	order := make([]weighed, len(all))
	for i, n := range all {
		order[i] = weighed{sha256.Sum256([]byte(string(of) + "\x00" + string(n.Name))), n}
	}
	slices.SortFunc(order, func(a, b weighed) int { return bytes.Compare(a.weight[:], b.weight[:]) })
	for i, each := range order {
		all[i] = each.is
	}
}
