package share

import (
	"context"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Selection is a selection of own objects that the hub follows: the Node, one ConfigMap, one Secret, or all of the node's Pods.
// The selection of the Pods has an empty name.
type Selection struct {
	stream.ID
	Replica Replica
}

// gathered is a selection as last read.
type gathered struct {
	replica Replica
	as      edge.Moment // up to which the content is complete
	objects []stream.Object
}

// lasting is an object with its history.
type lasting struct {
	stream.Object
	in edge.History
}

// gatherer determines what the coordinator should have. Only the pushing goroutine uses it.
type gatherer struct {
	NodeConfig
	// changed is rung when Accounts has read a ServiceAccount. podAccounts caches the names of the Pods' ServiceAccounts.
	changed     bell
	podAccounts map[stream.Key]podAccount

	read map[stream.ID]gathered
	// lasting has ConfigMaps and Secrets that the coordinator has accepted, in case the coordinator loses them. kubelet reads an
	// immutable one only once, so the hub may no longer follow it.
	lasting map[stream.ID]lasting
}

func newGatherer(c NodeConfig, changed bell) *gatherer {
	return &gatherer{
		NodeConfig: c, changed: changed, podAccounts: map[stream.Key]podAccount{},
		lasting: map[stream.ID]lasting{},
	}
}

// gather returns what the coordinator should have now.
func (g *gatherer) gather(ctx context.Context) want {
	w := want{
		objects: map[stream.ID]stream.Object{}, in: map[stream.ID]edge.History{}, locals: map[stream.ID]uint64{},
		cut: g.Overlay.Cut(g.Ends.Running()),
	}
	read := map[stream.ID]gathered{}
	for _, s := range g.Followed() {
		if s.Resource == secrets && !g.Secrets {
			continue
		}
		now, ok := g.refresh(ctx, s)
		if !ok {
			continue
		}
		read[s.ID] = now
		delete(g.lasting, s.ID)
		for _, o := range now.objects {
			w.add(stream.ID{Resource: s.Resource, Key: o.Key}, o, now.as.History)
		}
	}
	g.read = read
	self, allPods := stream.ID{Resource: nodes, Key: stream.Key{Name: string(g.Node)}}, stream.ID{Resource: pods}
	for i, o := range g.lasting {
		w.add(i, o.Object, o.in)
	}
	if _, known := read[allPods]; known {
		g.Accounts.want(g.changed, accountsOf(w, g.podAccounts), g.Ends.Running())
	}
	g.Accounts.addTo(w)
	g.Overlay.AddTo(w.objects, w.in, w.locals, w.cut)
	w.known = func(i stream.ID) edge.Moment {
		switch i.Resource {
		case pods:
			return read[allPods].as
		case events:
			if g.Overlay.HasEvent(i.Key) {
				return edge.Moment{}
			}
			return forever // it is over, whatever its revision
		case serviceAccounts:
			return g.Accounts.known(i.Key)
		default:
			return read[i].as
		}
	}
	if _, known := read[self]; !known { // nor which pool the node is of
		return want{known: func(stream.ID) edge.Moment { return edge.Moment{} }}
	}
	w.left = g.left(w.objects[self])
	return w
}

// refresh reads a selection, if it has changed.
func (g *gatherer) refresh(ctx context.Context, s Selection) (gathered, bool) {
	now := edge.Moment{History: s.Replica.History(), Revision: s.Replica.Position()}
	if last, ok := g.read[s.ID]; ok && last.replica == s.Replica && last.as == now {
		return last, true
	}
	content, err := s.Replica.Snapshot(ctx)
	if err != nil || content.Type.Encoding != stream.Protobuf && len(content.Objects) > 0 {
		return gathered{}, false // not complete yet; or an API server that does not know protobuf, which there is none
	}
	return gathered{s.Replica, edge.Moment{History: content.History, Revision: content.Revision}, content.Objects}, true
}

// left reports whether the node has left the pool, or the cluster.
func (g *gatherer) left(node stream.Object) bool {
	if node.Raw == nil {
		return true
	}
	labels, err := stream.Labels(stream.Protobuf, node.Raw)
	return err == nil && labels[edge.LabelNodePool] != string(g.Pool)
}

// keep records which objects the coordinator has accepted. It drops those that the coordinator has refused and does not have.
func (g *gatherer) keep(w want, h have, refused map[stream.ID]offer) {
	for i, o := range w.objects {
		_, taken := h[i]
		if _, no := refused[i]; no && !taken {
			delete(g.lasting, i)
			if i.Resource == events {
				g.Overlay.DropEvent(i.Key) // it is about what is no longer here
			}
			continue
		}
		if taken && (i.Resource == configMaps || i.Resource == secrets) {
			g.lasting[i] = lasting{o, w.in[i]}
		}
	}
}
