package shareserver

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

// applying is a push on its way into etcd and into the claims. Only the holder of turn uses it.
type applying struct {
	*nodePush

	answer  edge.Taken
	batch   Transaction
	written []stream.ID        // in the batch or before
	fresh   []stream.ID        // those of them that had no claim before
	pods    []edge.PodPresence // written
	gone    []stream.ID        // nobody claims these any more
	failed  error              // the error of the writes
	hidden  []stream.ID        // contested by this push; the last was shown as that of node from
	from    edge.NodeName
}

// store writes a push to etcd and to the claims.
func (p *nodePush) store(ctx context.Context) edge.Taken {
	w := &applying{nodePush: p, batch: Transaction{Write: p.write}}
	before := w.version()
	for _, c := range p.changes {
		if c.value != nil {
			w.refuse(c, w.put(ctx, c))
		}
	}
	w.fail(w.batch.Commit(ctx))
	w.settle(ctx)
	w.show()
	for _, c := range p.changes {
		if c.value == nil {
			w.refuse(c, w.release(c))
		}
	}
	p.mu.Lock()
	has := p.claims.nodes[p.node]
	surprised := has.version != before
	if has.version++; !surprised {
		w.answer.Applied = p.state(has)
	}
	p.mu.Unlock()
	p.remove(ctx, p.node, w.gone)
	w.warnContested()
	return w.answer
}

// warnContested says that a push has contested what another node has here.
func (w *applying) warnContested() {
	if len(w.hidden) == 0 {
		return
	}
	w.contests.Add(float64(len(w.hidden)))
	w.tell.Do(func() {
		last := w.hidden[len(w.hidden)-1]
		w.log.Info("Two nodes say that they have one Pod: one of them lies, or has not heard from the cloud that "+
			"the Pod is on another node now. It is shown as neither's until only one says so", "pod", last.Key, "from", w.node,
			"shownBefore", w.from, "podsOfThisPush", len(w.hidden))
	})
}

func (w *applying) version() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims.nodes[w.node].version
}

// refuse records why a change was not made; nil means that it was.
func (w *applying) refuse(c change, err error) {
	if err == nil {
		return
	}
	why := &exchange.Refusal{Code: http.StatusServiceUnavailable, Message: err.Error()}
	_ = errors.As(err, &why)
	key := c.offer.id.Key
	w.answer.Refused = append(w.answer.Refused, edge.RefusedObject{
		Namespace: key.Namespace, Name: key.Name, Code: why.Code, Message: why.Message,
	})
}

// fail records that writing failed: then nobody knows which of the writes were made.
func (w *applying) fail(err error) {
	if err != nil && w.failed == nil {
		w.failed = err
	}
}

// put adds an object to the batch if its node may have it here.
func (w *applying) put(ctx context.Context, c change) error {
	if c.refused != nil {
		return c.refused
	}
	id := c.offer.id
	w.mu.Lock()
	newest, err := w.claims.judge(w.node, c.offer)
	known := w.claims.objects[id] != nil
	shown, hides := w.claims.hides(w.node, id)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if newest {
		// Anybody who reaches the API may have written an object of that name, whatever the claims say.
		value, at, err := w.lookUp(ctx, c.key)
		if err != nil {
			return err
		}
		_, ours := w.orphans[id]
		if ours = ours || known && w.kind.shared; value != nil && !ours && !w.kind.isOf(w.node, value) {
			return exchange.Refused(http.StatusConflict, "another object of that name is here, not one of node %q", w.node)
		}
		w.written = append(w.written, id)
		if !known {
			w.fresh = append(w.fresh, id)
		}
		if c.pod != nil {
			pod := *c.pod
			pod.Revision, pod.History, pod.Said = c.offer.at.Revision, c.offer.at.History, c.offer.local
			w.pods = append(w.pods, pod)
		}
		w.fail(w.batch.Put(ctx, c.key, c.value))
		w.batch.Provided(c.key, at)
		delete(w.orphans, id)
	}
	if hides {
		w.hidden = append(w.hidden, id)
		w.from = shown
		w.orphans[id] = shown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = append(w.gone, w.claims.record(w.node, c.offer, newest)...)
	return nil
}

// isOf reports whether value, as etcd has it, is an object of node n.
func (k Kind) isOf(n edge.NodeName, value []byte) bool {
	t, raw, err := stream.OpenEnvelope(value)
	if err != nil || t.Encoding != stream.Protobuf {
		return false
	}
	there := k.New()
	return there.Unmarshal(raw) == nil && nodeOf(there) == n
}

// settle ends a push whose writing to etcd failed. It makes hubs push again what may not have been written. It releases the
// claims that this push began, because the objects may belong to another node before the next push.
func (w *applying) settle(ctx context.Context) {
	if w.failed == nil {
		return
	}
	if !errors.Is(w.failed, ErrChanged) {
		klog.FromContext(ctx).Error(w.failed, "Failed to write a node's objects to etcd; its hub will push them again",
			"from", w.node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.fresh {
		w.claims.nodes[w.node].version++
		w.gone = append(w.gone, w.claims.release(w.node, id)...)
	}
	for _, id := range w.written {
		w.claims.doubt(id)
	}
}

// show tells Presence which Pods have been written, and which are contested now.
func (w *applying) show() {
	for _, pod := range w.pods {
		if w.failed == nil {
			w.present.Shown(pod)
		}
	}
	for _, id := range w.hidden {
		w.present.Hidden(id.Key) // only Pods are contested
	}
}

// release ends the node's claim to an object, unless the node has pushed a state later than the deletion.
func (w *applying) release(c change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.claims.nodes[w.node].claims[c.offer.id]
	if have != nil && c.offer.at.Before(have.at) {
		return exchange.Refused(http.StatusConflict, "it is here at %s, later than its deletion at %s", have.at, c.offer.at)
	}
	w.gone = append(w.gone, w.claims.release(w.node, c.offer.id)...)
	return nil
}

// remove deletes from etcd what nobody claims any more, what is contested, and what earlier failures left behind.
func (o *NodeObjects) remove(ctx context.Context, n edge.NodeName, gone []stream.ID) {
	for _, id := range gone {
		o.orphans[id] = n
		if id.Resource == resourcePods {
			o.present.Hidden(id.Key)
		}
	}
	maps.DeleteFunc(o.orphans, func(id stream.ID, _ edge.NodeName) bool { return o.shown(id) })
	if len(o.orphans) == 0 {
		return
	}
	if err := o.bury(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to delete objects of nodes from etcd; the next push will retry")
		return
	}
	o.orphans = map[stream.ID]edge.NodeName{}
}

// bury deletes the orphans, except those that somebody has since replaced through the API.
func (o *NodeObjects) bury(ctx context.Context) error {
	batch := Transaction{Write: o.write}
	for id, was := range o.orphans {
		k := o.byName[id.Resource]
		key := k.Key(id.Key)
		value, at, err := o.lookUp(ctx, key)
		if err != nil {
			return err
		}
		if value == nil || !k.shared && !k.isOf(was, value) {
			continue
		}
		if err := batch.Remove(ctx, key); err != nil {
			return err
		}
		batch.Provided(key, at)
	}
	return batch.Commit(ctx)
}

func (o *NodeObjects) shown(id stream.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claims.shown(id)
}
