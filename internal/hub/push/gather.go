package push

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Selection is something that the hub follows.
type Selection struct {
	Resource          schema.GroupVersionResource
	Namespace, Fields string // as follow.Selection
	Replica           Replica
}

// gathered is a selection as it was read.
type gathered struct {
	replica Replica
	as      edge.Moment // of which it has everything
	objects []stream.Object
}

// lasting is an object of a history.
type lasting struct {
	stream.Object
	in edge.History
}

// gatherer says what the coordinator is to have. The goroutine that pushes owns it.
type gatherer struct {
	NodeConfig
	// accounts are those of podAccounts, which are read when their Pods change.
	accounts    *accounts
	podAccounts map[stream.Key]podAccount

	read map[Selection]gathered // Replica is nil in the key
	// lasting are ConfigMaps and Secrets that the coordinator has taken: kubelet reads one that is immutable only once, and
	// what it no longer follows the coordinator must still be told again when it has lost it.
	lasting map[stream.ID]lasting
}

func newGatherer(c NodeConfig, changed bell) *gatherer {
	return &gatherer{
		NodeConfig: c, accounts: newAccounts(c, changed), podAccounts: map[stream.Key]podAccount{},
		lasting: map[stream.ID]lasting{},
	}
}

// gather returns what the coordinator is to have now.
func (g *gatherer) gather(ctx context.Context) want {
	w := want{
		objects: map[stream.ID]stream.Object{}, in: map[stream.ID]edge.History{}, locals: map[stream.ID]uint64{},
		cut: g.Overlay.Cut(time.Now()),
	}
	known := map[stream.ID]edge.Moment{} // of single objects, and of whole resources without a key
	read := map[Selection]gathered{}
	for _, s := range g.Followed() {
		resource, single := g.mine(s)
		if resource == "" {
			continue
		}
		now, ok := g.refresh(ctx, s)
		if !ok {
			continue
		}
		s.Replica = nil
		read[s] = now
		about := stream.ID{Resource: resource}
		if single != "" {
			about.Key = stream.Key{Namespace: s.Namespace, Name: single}
			delete(g.lasting, about)
		}
		if known[about].Before(now.as) {
			known[about] = now.as
		}
		for _, o := range now.objects {
			w.add(stream.ID{Resource: resource, Key: o.Key}, o, now.as.History)
		}
	}
	g.read = read
	for i, o := range g.lasting {
		w.add(i, o.Object, o.in)
	}
	if known[stream.ID{Resource: pods}] != (edge.Moment{}) {
		g.accounts.want(accountsOf(w.objects, g.podAccounts), time.Now())
	}
	g.accounts.addTo(w)
	g.Overlay.AddTo(w.objects, w.in, w.locals, w.cut)
	w.known = func(i stream.ID) edge.Moment {
		switch i.Resource {
		case nodes, pods:
			return known[stream.ID{Resource: i.Resource}]
		case events:
			if g.Overlay.HasEvent(i.Key) {
				return edge.Moment{}
			}
			return forever // it is over, whatever its revision
		case serviceAccounts:
			return g.accounts.known(i.Key)
		default:
			return known[i]
		}
	}
	if w.left = g.left(w); known[stream.ID{Resource: nodes}] == (edge.Moment{}) { // it is not known yet which pool the node is of
		return want{known: func(stream.ID) edge.Moment { return edge.Moment{} }}
	}
	return w
}

// Find returns an object of a node's own, a Node or a Pod, as the cloud has it by what the hub follows.
func Find(followed []Selection, node edge.NodeName, i stream.ID) (stream.Object, bool) {
	g := gatherer{NodeConfig: NodeConfig{Config: Config{Node: node}}}
	for _, s := range followed {
		if resource, _ := g.mine(s); resource == i.Resource && s.Replica.Type().Encoding == stream.Protobuf {
			if o, ok := s.Replica.Get(i.Key); ok {
				return o, true
			}
		}
	}
	return stream.Object{}, false
}

// mine returns the resource of a selection that concerns this node, and the name of the single object that it is about.
func (g *gatherer) mine(s Selection) (resource, single string) {
	if s.Resource.Group != "" || s.Resource.Version != "v1" {
		return "", ""
	}
	name, named := nameOf(s.Fields)
	switch r := s.Resource.Resource; {
	case r == nodes && named && name == string(g.Node):
		return nodes, ""
	case r == pods && s.Namespace == "" && s.Fields == "spec.nodeName="+string(g.Node):
		return pods, ""
	case (r == configMaps || r == secrets && g.Secrets) && s.Namespace != "" && named:
		return r, name
	default:
		return "", ""
	}
}

// refresh reads a selection, if it has changed.
func (g *gatherer) refresh(ctx context.Context, s Selection) (gathered, bool) {
	replica := s.Replica
	s.Replica = nil
	now := edge.Moment{History: replica.History(), Revision: replica.Position()}
	if last, ok := g.read[s]; ok && last.replica == replica && last.as == now {
		return last, true
	}
	content, err := replica.Snapshot(ctx)
	if err != nil || content.Type.Encoding != stream.Protobuf && len(content.Objects) > 0 {
		return gathered{}, false // not complete yet; or an API server that does not know protobuf, which there is none
	}
	return gathered{replica, edge.Moment{History: content.History, Revision: content.Revision}, content.Objects}, true
}

// left reports whether the node has left the pool, or the cluster.
func (g *gatherer) left(w want) bool {
	i := stream.ID{Resource: nodes, Key: stream.Key{Name: string(g.Node)}}
	o, ok := w.objects[i]
	if !ok {
		return w.known(i) != edge.Moment{}
	}
	labels, err := stream.Labels(stream.Protobuf, o.Raw)
	return err == nil && labels[edge.LabelNodePool] != string(g.Pool)
}

// keep remembers what the coordinator has taken, and forgets what it does not have.
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
