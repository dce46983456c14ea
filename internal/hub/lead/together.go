package lead

import (
	"maps"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
)

// overdue is the share of a certificate's life that is left when its renewal counts as overdue. A hub renews its own certificate
// with a tenth left at the latest.
const overdue = 0.08

// tally sums the traffic of a pool's hubs since the tally began.
type tally struct {
	last map[edge.NodeName]edge.Carried
	sum  edge.Carried
}

// count adds the hubs' traffic since the last call. A hub's first value is its starting point. A hub that has not reported for a
// while continues from its last value.
func (t *tally) count(hubs map[edge.NodeName]edge.HubReport) {
	if t.last == nil {
		t.last, t.sum = map[edge.NodeName]edge.Carried{}, edge.Carried{}
	}
	for node, said := range hubs {
		if before, known := t.last[node]; known {
			t.sum.Add(said.Carried.Since(before))
		}
		t.last[node] = said.Carried
	}
	if len(t.last) > maxBeats { // no pool has so many nodes: somebody invents them
		maps.DeleteFunc(t.last, func(node edge.NodeName, _ edge.Carried) bool {
			_, renews := hubs[node]
			return !renews
		})
	}
}

// together sums up the state of a pool's hubs.
func together(
	hubs map[edge.NodeName]edge.HubReport, lines map[edge.NodeName]edge.Line, carried edge.Carried, now time.Time,
) edge.PoolHubs {
	p := edge.PoolHubs{
		Links: map[string]int{}, Carried: carried, Certificates: map[string]edge.Life{},
		Troubles: map[edge.HubTrouble][]edge.NodeName{},
	}
	first := true
	for node, said := range hubs {
		p.Links[said.Link]++
		if first || said.Settings < p.OldestSettings {
			p.OldestSettings = said.Settings
		}
		p.NewestSettings, first = max(p.NewestSettings, said.Settings), false
		troubles := slices.Clone(said.Troubles)
		for kind, life := range said.Certificates {
			if least, known := p.Certificates[kind]; !known || life.Left(now) < least.Left(now) {
				p.Certificates[kind] = life
			}
			if trouble := edge.TroubleOf(kind); life.Left(now) < overdue && !slices.Contains(troubles, trouble) {
				troubles = append(troubles, trouble)
			}
		}
		for _, trouble := range troubles {
			p.Troubles[trouble] = append(p.Troubles[trouble], node)
		}
	}
	for trouble, nodes := range p.Troubles {
		slices.Sort(nodes)
		if n := len(nodes) - edge.MostTroubled; n > 0 {
			nodes, p.More = nodes[:edge.MostTroubled], p.More+n
		}
		p.Troubles[trouble] = nodes
	}
	for _, line := range lines {
		p.Answer, p.Lost = max(p.Answer, line.Answer.Milliseconds()), p.Lost+line.Lost
	}
	return p
}

// alike reports whether two sums differ at most in traffic, certificates and lines, which the cloud need not hear of soon.
func alike(a edge.PoolHubs, b *edge.PoolHubs) bool {
	return b != nil && a.Term == b.Term && maps.Equal(a.Links, b.Links) && a.More == b.More &&
		maps.EqualFunc(a.Troubles, b.Troubles, slices.Equal) &&
		a.OldestSettings == b.OldestSettings && a.NewestSettings == b.NewestSettings
}
