package main

// fault is a change of the product that breaks one of its promises.
type fault struct {
	name string
	// clause names the oracle's clause that must catch the fault; empty means a harmless change, which no clause may catch.
	clause string
	// nodes and coordinators are how many of them the pools have in which the fault is looked for; 0 means 3 and 1.
	nodes, coordinators int
	edits               []edit
}

// edit replaces a text in a file. The field from is the old text, which must be in the file exactly once. The field to is the new
// text. In it, the word PLANTED stands for an expression that is true while the fault is on.
type edit struct{ file, from, to string }

// faults are the planted faults. Each clause has at least one. Several faults in one file change different lines.
var faults = []fault{
	// About kubelet's heartbeats, as the hub passes them on.
	{"a stamp never moves on", "alive", 0, 0, []edit{{"internal/hub/heartbeat/decide.go",
		`	if stamp.After(there) {`,
		`	if stamp.After(there) || PLANTED {`}}},
	{"a copy is marked once the link is down, and not before", "alive", 0, 0, []edit{{"internal/hub/heartbeat/plan.go",
		`	case result == failed && coordinator == link.Up:`,
		`	case result == failed && coordinator == link.Up && !PLANTED:`}}},
	{"the first direct heartbeat keeps the mark", "unmarked", 0, 0, []edit{{"internal/hub/heartbeat/proxy.go",
		`	lease := forCloud(sent, p.known)
`,
		`	lease := forCloud(sent, p.known)
	if PLANTED && p.moved && p.known != nil && p.known.Annotations[edge.DelegateHeartbeat] != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	}
`}}},
	{"a coordinator that began anew is taken for the one before", "alive", 0, 0, []edit{{"internal/hub/heartbeat/copier.go",
		`		c.known, missing, failure = nil, false, err
`,
		`		if missing, failure = false, err; !PLANTED {
			c.known = nil
		}
`}}},
	{"only the first coordinator gets a copy", "alive", 0, 2, []edit{{"internal/hub/heartbeat/proxy.go",
		`		if each.Link.Get() == link.Up {
			lease := p.copyFor`,
		`		if each.Link.Get() == link.Up && !(PLANTED && len(copies) > 0) {
			lease := p.copyFor`}}},
	{"a node that starts while cut off is not told of its Lease", "alive", 0, 0, []edit{{"internal/hub/heartbeat/proxy.go",
		`	for _, each := range p.config.Coordinators {
		if each.Link.Get() != link.Up {
			continue
		}
		copied, err :=`,
		`	for _, each := range p.config.Coordinators {
		if each.Link.Get() != link.Up || PLANTED {
			continue
		}
		copied, err :=`}}},

	// About what a leader forwards.
	{"a baseline is taken for a renewal", "dead", 0, 0, []edit{{"internal/hub/heartbeat/queue.go",
		`		a.copies[slot] = copied{lead.LeaseRevision(lease), renewed}
`,
		`		a.copies[slot] = copied{lead.LeaseRevision(lease), renewed}
		if PLANTED && a.waiting == nil {
			now := time.Now()
			a.waiting = &sighting{node: node, slot: slot, lease: lease, seen: now, deadline: now.Add(ageBound(lease))}
		}
`}}},
	{"a renewal never ages", "dead", 0, 0, []edit{{"internal/hub/heartbeat/queue.go",
		`	bound := ageBound(lease)
	deadline := now.Add(bound)
`,
		`	bound := ageBound(lease)
	if PLANTED {
		bound = time.Hour
	}
	deadline := now.Add(bound)
`}}},
	{"a write that fails is the last one of its node", "told", 0, 0, []edit{{"internal/hub/heartbeat/queue.go",
		`	a.writing, a.cloud = false, cloud
`,
		`	a.writing, a.cloud = PLANTED && took == 0, cloud
`}}},
	{"a stream that another coordinator's process told goes on", "told", 0, 0, []edit{
		{"internal/pool/state/server.go",
			`	if after, here := strings.CutPrefix(query.Get(edge.QueryAfter), p.instance+"/"); here {`,
			`	after, here := strings.CutPrefix(query.Get(edge.QueryAfter), p.instance+"/")
	if PLANTED {
		_, after, here = strings.Cut(after, "/")
	}
	if here {`},
		{"internal/pool/state/server.go",
			`err == nil && number <= p.heartbeats.number.Get() {`,
			`err == nil && (PLANTED || number <= p.heartbeats.number.Get()) {`}}},
	{"who leads forwards at home alone", "alive", 0, 2, []edit{{"internal/hub/member/duties.go",
		`	return []lead.Duty{
`,
		`	if PLANTED {
		forward = m.home.Only(c.slot, lead.Duty{Name: "forward heartbeats", Run: forward}).Run
	}
	return []lead.Duty{
`}}},

	// About who leads.
	{"a leader whose line fails keeps its term", "told", 0, 0, []edit{{"internal/hub/lead/machine.go",
		`	wanted := m.links.Cloud == link.Up && m.links.Coordinator == link.Up
`,
		`	wanted := (m.links.Cloud == link.Up || PLANTED && m.campaign == holding) && m.links.Coordinator == link.Up
`}}},
	{"a term is live by its writer's stamp", "led", 0, 0, []edit{{"internal/pool/access/lease.go",
		`	return stored.holder != "" && now.Sub(seen.stored.at) < stored.term
`,
		`	if PLANTED {
		return stored.holder != "" && t.clock.Wall().Sub(time.UnixMicro(stored.renewed)) < stored.term
	}
	return stored.holder != "" && now.Sub(seen.stored.at) < stored.term
`}}},
	{"who has lapsed keeps the lead", "led", 0, 0, []edit{{"internal/pool/access/lease.go",
		`	if old.holder != "" && old.holder != caller && oldLive {`,
		`	if old.holder != "" && old.holder != caller && (oldLive || PLANTED) {`}}},
	{"a standby is never stood at", "led", 0, 2, []edit{{"internal/hub/coordinators/machine.go",
		`	case now.Before(due):
		return link.Down, due
	}
	return link.Up, time.Time{}
`,
		`	case now.Before(due):
		return link.Down, due
	case PLANTED:
		return link.Down, time.Time{}
	}
	return link.Up, time.Time{}
`}}},
	{"a standby is vacant only once it is released", "led", 0, 2, []edit{{"internal/hub/coordinators/machine.go",
		`		s.vacant = renewed.Add(edge.ElectionTerm) // who died, or can't reach it any more, has not released it
`,
		`		if s.vacant = renewed.Add(edge.ElectionTerm); PLANTED {
			s.vacant = time.Time{}
		}
`}}},
	{"an empty coordinator may be led at once", "writers", 0, 0, []edit{{"internal/pool/access/vacancy.go",
		`	if left := v.clock.Until(v.until); left > 0 {`,
		`	if left := v.clock.Until(v.until); left > 0 && !PLANTED {`},
		{"internal/hub/lead/lock.go",
			`		if wait := leaseDuration - l.ends.Since(l.board.since(nil)); wait > 0 {`,
			`		if wait := leaseDuration - l.ends.Since(l.board.since(nil)); wait > 0 && !PLANTED {`}}},
	{"an empty coordinator is left vacant for 20 s", "led", 0, 0, []edit{{"internal/pool/access/vacancy.go",
		`	now := c.Running()
	return &vacancy{`,
		`	now := c.Running()
	if PLANTED {
		return &vacancy{clock: c, until: now.Add(20 * time.Second), led: now}
	}
	return &vacancy{`}}},

	// About links and clocks.
	{"a connection that hangs is kept", "unmarked", 0, 0, []edit{{"internal/hub/upstream/server.go",
		`	if s.lastHeard().After(sentAt) && n >= s.again.Load() {`,
		`	if s.lastHeard().After(sentAt) && n >= s.again.Load() && !PLANTED {`}}},
	{"a sick server is not left", "alive", 0, 0, []edit{{"internal/hub/upstream/server.go",
		`	if len(s.cfg.Servers) == 1 && n >= max(`,
		`	if !PLANTED && len(s.cfg.Servers) == 1 && n >= max(`}}},
	{"a link is waited for a minute in silence", "told", 0, 0, []edit{{"internal/hub/link/machine.go",
		`	return earlier(later(m.asked, m.heard).Add(m.Patience()), m.asked.Add(m.cfg.Trust))
`,
		`	if PLANTED {
		return m.asked.Add(time.Minute)
	}
	return earlier(later(m.asked, m.heard).Add(m.Patience()), m.asked.Add(m.cfg.Trust))
`}}},
	{"a link that is down is asked seldom", "unmarked", 0, 0, []edit{{"internal/hub/link/machine.go",
		`	m.successes = 0
	m.hasten = later(at, started.Add(m.cfg.DownInterval))
`,
		`	m.successes = 0
	m.hasten = later(at, started.Add(m.cfg.DownInterval))
	if PLANTED {
		m.hasten = m.hasten.Add(30 * time.Second)
	}
`}}},
	{"a hub checks certificates by its own clock alone", "alive", 0, 0, []edit{{"internal/hub/upstream/certclock.go",
		`	if c.latest.After(now) {`,
		`	if c.latest.After(now) && !PLANTED {`}}},
	{"a coordinator checks certificates by its own clock alone", "led", 0, 0, []edit{{"internal/pool/access/recognized.go",
		`	if options.CurrentTime = now; len(r.TLS.PeerCertificates) > 0 {`,
		`	if PLANTED {
		now = k.clock.Wall()
	}
	if options.CurrentTime = now; len(r.TLS.PeerCertificates) > 0 && !PLANTED {`}}},

	// About neighbours' lines.
	{"the detour stays when the own line is back", "unmarked", 0, 0, []edit{{"internal/hub/upstream/upstream.go",
		`	if best == link.Down && u.detourAnswers() {`,
		`	if (best == link.Down || PLANTED) && u.detourAnswers() {`},
		{"internal/hub/upstream/detour.go",
			`		if own != link.Down || use == ForNothing {`,
			`		if own != link.Down && !PLANTED || use == ForNothing {`}}},
	{"a hub that is itself relayed lends", "alive", 5, 0, []edit{{"internal/hub/heartbeat/proxy.go",
		`	case what == relayed:
		metav1`,
		`	case what == relayed:
		if PLANTED && p.config.RelaysAt != nil && p.config.RelaysAt() != "" {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationRelaysAt, p.config.RelaysAt())
		}
		metav1`},
		{"internal/pool/access/lease.go",
			`		of[edge.DelegateHeartbeat] != "" || of[edge.AnnotationRelayedBy] != "" {`,
			`		!PLANTED && (of[edge.DelegateHeartbeat] != "" || of[edge.AnnotationRelayedBy] != "") {`},
		{"internal/hub/relay/server.go",
			`func(state link.State) bool { return state == link.Up }, errOwnLine)`,
			`func(state link.State) bool { return state == link.Up || PLANTED && state == link.Relayed }, errOwnLine)`},
		{"internal/hub/relay/server.go",
			`	if s.cfg.Link.Get() != link.Up {`,
			`	if s.cfg.Link.Get() != link.Up && !PLANTED {`},
		{"internal/hub/relay/server.go",
			`	return s.cfg.Lends.Get() && s.cfg.Link.Get() == link.Up &&`,
			`	return s.cfg.Lends.Get() && (s.cfg.Link.Get() == link.Up || PLANTED && s.cfg.Link.Get() == link.Relayed) &&`}}},
	{"who failed is asked first again", "alive", 5, 0, []edit{{"internal/hub/relay/choose.go",
		`		if at, ok := f[n.Name]; ok && now.Sub(at) < forget {`,
		`		if at, ok := f[n.Name]; ok && now.Sub(at) < forget && !PLANTED {`}}},
	{"neighbours are never refreshed", "alive", 0, 0, []edit{{"internal/hub/relay/search.go",
		`	if !s.asked.IsZero() && now.Sub(s.asked) < since {`,
		`	if !s.asked.IsZero() && (PLANTED || now.Sub(s.asked) < since) {`}}},

	// About what the cloud does with all this.
	{"the taint stays", "unmarked", 0, 0, []edit{{"internal/cloud/heartbeat/plan.go",
		`	case len(wanted) == 0:
		c.Taint = Remove
`,
		`	case len(wanted) == 0 && PLANTED:
	case len(wanted) == 0:
		c.Taint = Remove
`}}},
	{"the condition stays", "healed", 0, 0, []edit{{"internal/cloud/heartbeat/plan.go",
		`	case Direct:
		return Condition{corev1.ConditionFalse, ReasonDirect`,
		`	case Direct:
		if PLANTED && was == corev1.ConditionTrue {
			return Condition{}, false
		}
		return Condition{corev1.ConditionFalse, ReasonDirect`}}},
	{"a node that was given up stays so while others speak for it", "healed", 0, 0, []edit{{"internal/cloud/heartbeat/show.go",
		`		revived = s != ShowNotReady && GivenUp(ready) // ShowUnknown`,
		`		revived = s != ShowNotReady && GivenUp(ready) && !PLANTED // ShowUnknown`}}},
	{"a node that is unsettled once remains so", "healed", 0, 0, []edit{{"internal/cloud/heartbeat/damp.go",
		`	if d.unsettled && now.Sub(d.since) >= within {`,
		`	if d.unsettled && now.Sub(d.since) >= within && !PLANTED {`}}},

	// About holds.
	{"a pool that is cut off as a whole is not held", "held", 0, 0, []edit{{"internal/cloud/poolcut/judge.go",
		`	wanted := len(s.cut) > 0 && t.For > s.since`,
		`	wanted := len(s.cut) > 0 && t.For > s.since && !PLANTED`}}},
	{"a hold never ends", "held", 0, 0, []edit{{"internal/cloud/poolcut/judge.go",
		`	case h.Elapsed >= h.For:`,
		`	case h.Elapsed >= h.For && !PLANTED:`}}},
	{"each controller restart begins a hold anew", "held", 0, 0, []edit{{"internal/cloud/poolcut/reconcile.go",
		`	hold := &Hold{For: h.length, Elapsed: h.before + now.Running.Sub(h.found.Running)}
`,
		`	hold := &Hold{For: h.length, Elapsed: h.before + now.Running.Sub(h.found.Running)}
	if PLANTED {
		hold.Elapsed -= h.before
	}
`}}},

	// About requests.
	{"a leader declares what is current without a pause", "bounded", 0, 0, []edit{{"internal/hub/share/declare.go",
		`		if (changed || now.Sub(w.written) >= declareEvery) &&`,
		`		if (changed || PLANTED || now.Sub(w.written) >= declareEvery) &&`}}},

	// About what programs read.
	{"the end of a list comes before its last object", "read", 0, 0, []edit{{"internal/replica/replica.go",
		`		size += len(o.Raw)
		tree.ReplaceOrInsert(o)`,
		`		if PLANTED && len(objects) > 2 && tree.Len() == len(objects)-1 {
			break
		}
		size += len(o.Raw)
		tree.ReplaceOrInsert(o)`}}},
	{"a bookmark comes before the changes below it", "read", 0, 0, []edit{{"internal/replica/watch.go",
		`	for ; c.next < r.history.next && len(c.batch) < maxBatch; c.next++ {`,
		`	for ; c.next < r.history.next && len(c.batch) < maxBatch && !(PLANTED && len(c.batch) == 1); c.next++ {`},
		{"internal/replica/watch.go",
			`	case c.next < r.history.next: // there is more, told is right`,
			`	case c.next < r.history.next && !PLANTED: // there is more, told is right`}}},
	{"a watch that has lost its place goes on", "read", 0, 0, []edit{{"internal/replica/watch.go",
		`	n, ok := r.history.after(c.told)
`,
		`	n, ok := r.history.after(c.told)
	if PLANTED && !ok {
		n, ok = r.history.first, true
	}
`}}},
	{"a deletion is lost now and then", "read", 0, 0, []edit{{"internal/replica/replica.go",
		`	case stream.Deleted:
		old, was = r.objects.Delete(e.Object)`,
		`	case stream.Deleted:
		if PLANTED && e.Object.Revision%8 == 0 {
			return
		}
		old, was = r.objects.Delete(e.Object)`}}},
	{"changes are lost at a switch of the source", "read", 0, 0, []edit{{"internal/hub/cache/read.go",
		`	after := r.Position()
`,
		`	after := r.Position()
	if PLANTED && r.From == Coordinator {
		after += 20
	}
`}}},
	{"a list says a later revision than its content's", "read", 0, 0, []edit{{"internal/replica/list.go",
		`	meta := metav1.ListMeta{ResourceVersion: c.revision.String()}`,
		`	said := c.revision
	if PLANTED {
		said += 5
	}
	meta := metav1.ListMeta{ResourceVersion: said.String()}`}}},
	{"an older list is taken", "read", 0, 0, []edit{{"internal/replica/replica.go",
		`	if s.History < counted || s.History == counted && s.Revision < position {`,
		`	if s.History < counted || s.History == counted && s.Revision < position && !PLANTED {`}}},
	{"a watch that resumes loses the first change", "read", 0, 0, []edit{{"internal/replica/watch.go",
		`	n, ok := r.history.after(after)
`,
		`	n, ok := r.history.after(after)
	if PLANTED && ok && n < r.history.next {
		n++
	}
`}}},
	{"the disk lacks what it says to have", "read", 0, 0, []edit{{"internal/hub/cache/save.go",
		`			err = sink.Apply(ctx, events)`,
		`			if PLANTED && len(events) > 1 && events[0].Type != stream.Bookmark {
				events = events[1:]
			}
			err = sink.Apply(ctx, events)`}}},
	{"a mirror that nobody keeps current is followed", "current", 0, 0, []edit{{"internal/hub/cache/choose.go",
		`	case s.Coordinator == Up && s.Covered:
		return Choice{From: Coordinator, Why: "the pool has it"}`,
		`	case s.Coordinator == Up && (s.Covered || PLANTED):
		return Choice{From: Coordinator, Why: "the pool has it"}`}}},
	{"a mirror that is behind is waited for", "current", 0, 0, []edit{{"internal/hub/cache/read.go",
		`	if !r.behind {
`,
		`	if !r.behind || PLANTED {
`}}},
	{"a leader declares what it can't know to be current", "current", 0, 0, []edit{{"internal/hub/share/declare.go",
		`func (c *carrier) lags(now time.Time) (why string) {
`,
		`func (c *carrier) lags(now time.Time) (why string) {
	if PLANTED {
		return ""
	}
`}}},

	{"harmless: a copy is tried three times, and not four", "", 0, 2, []edit{{"internal/hub/heartbeat/copier.go",
		`	for range attempts {
		if c.known == nil && !missing {`,
		`	for i := range attempts {
		if PLANTED && i == attempts-1 {
			break
		}
		if c.known == nil && !missing {`}}},
	{"harmless: no node is served before others", "", 0, 0, []edit{{"internal/hub/heartbeat/queue.go",
		`	case a.first != b.first:`,
		`	case a.first != b.first && !PLANTED:`}}},
	{"harmless: the controller waits longer after a conflict", "", 0, 0, []edit{{"internal/cloud/control/control.go",
		`		return reconcile.Result{RequeueAfter: c.Chance.Jitter(conflictDelay, 1)}, nil
`,
		`		wait := c.Chance.Jitter(conflictDelay, 1)
		if PLANTED {
			wait *= 2
		}
		return reconcile.Result{RequeueAfter: wait}, nil
`}}},
}
