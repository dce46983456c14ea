package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// weather draws a hub's events from a seed: links go up and down, roles change, another leader pushes or dies, the coordinator
// restarts, the cloud forgets revisions.
func weather(w *feedWorld, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	w.begin()
	expiries := 1 // the first list counts as one
	pushing := false
	for range 150 {
		w.pass(time.Duration(r.IntN(4000)) * time.Millisecond)
		switch r.IntN(14) {
		case 0, 1:
			w.cloudLink.Set(link.State(r.IntN(4)))
		case 2, 3:
			s := link.State(r.IntN(3))
			w.mirrorLink.Set(s)
			if s != link.Up {
				w.standing.Set(lead.Standing{})
				w.covered.Set(false)
			}
		case 4:
			if w.mirrorLink.Get() == link.Up {
				w.standing.Set(lead.Standing{Role: lead.Follower, Leader: edge.NodeName([]string{"", "n2"}[r.IntN(2)])})
			}
		case 5:
			if w.mirrorLink.Get() == link.Up && w.cloudLink.Get() == link.Up {
				w.standing.Set(lead.Standing{Role: lead.Leader, Leader: "n1"})
			}
		case 6, 7:
			pushing = r.IntN(3) > 0
			if pushing && !w.mirror.complete {
				w.mirror.copy(w.cloud)
			}
		case 8:
			pushing = false
			w.mirror.do(func() {
				w.mirror.complete, w.mirror.history, w.mirror.revision, w.mirror.oldest = false, nil, 0, 0
				clear(w.mirror.objects)
				w.mirror.epoch++
				w.mirror.ending = errors.New("connection reset")
			})
		case 9:
			w.cloud.end(errors.New("connection reset"))
		case 10:
			w.mirror.end(errEOF)
		case 11:
			if r.IntN(4) == 0 {
				expiries++
				w.cloud.compact()
				w.cloud.end(stream.ErrExpired)
			}
		default:
			for range r.IntN(5) {
				w.cloud.put(fmt.Sprint(r.IntN(8)))
			}
		}
		if pushing && w.mirror.complete {
			if w.cloud.oldest > w.mirror.revision {
				w.mirror.copy(w.cloud)
			}
			w.mirror.relay(w.cloud)
		}
		w.covered.Set(pushing && w.mirror.complete && w.mirrorLink.Get() == link.Up)
	}
	// It clears up.
	w.links(link.Up, link.Up)
	w.is(lead.Leader, "n1")
	w.pass(2 * time.Minute)
	w.cloud.put("last")
	w.has(w.cloud)
	lists, _, _ := w.cloud.counts()
	w.want(Cloud, lists)

	if lists > expiries {
		w.t.Errorf("seed %d: %d lists over the WAN for %d reasons", seed, lists, expiries)
	}
}
