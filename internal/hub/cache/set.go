package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

const (
	// maxKept bounds the selections of the node's programs: kubelet follows each ConfigMap and Secret of its Pods separately, and
	// 110 Pods, a node's default maximum, have some hundreds. maxGuestKept bounds the selections of one caller. maxGuests bounds
	// the callers: a node has some ten ServiceAccounts whose programs are cached.
	maxKept, maxGuestKept, maxGuests = 1000, 50, 32
	// maxViewed is how many selections kubelet may have beyond maxKept, if it sees them through a view. The cloud can't take over
	// a selection with a view, because the cloud's answer would lack it. Each Pod has at most one or two such selections.
	maxViewed = 250
	// idleTime is how long the hub still follows a selection that has no users: a program that restarts is back within that time.
	// Later the selection's content is on the disk only.
	idleTime = 5 * time.Minute
	// tidyEvery is how often the set looks for idle selections.
	tidyEvery = 30 * time.Second
	// deniedFor is how long the cloud must deny a caller a selection before the hub forgets the content, also on the disk. An API
	// server that has just started denies everything for a moment.
	deniedFor = 2 * time.Minute
	// selectorBytes bounds the namespace and the selectors of a selection that the hub follows. Longer ones are rare, and a
	// client that sends ever new ones would fill the hub's memory.
	selectorBytes = 2 << 10
	// historyBytes and historyEvents bound the changes that a program's replica keeps for watches that resume.
	historyBytes, historyEvents = 256 << 10, 1000
)

// SetDisk keeps content; store.Store is one.
type SetDisk interface {
	SaverDisk
	// Touch says that a collection is in use.
	Touch(id store.Collection)
	// Need sets which collections must stay whatever their age and size. The collections of the given users must stay whatever
	// their age. Each call replaces the lists of the call before.
	Need(ids []store.Collection, users ...string)
	// Keeps reports whether a collection can be loaded when nobody follows it.
	Keeps() bool
}

// Config configures a Set. Fields without a default are required.
type Config struct {
	// Node is this node; its Pods determine what the disk must keep.
	Node edge.NodeName
	Disk SetDisk
	// Cloud is the state of the link to the cloud, Coordinator that of the link to the pool's coordinator.
	Cloud, Coordinator *live.Value[link.State]
	// NewFeed makes a feed for a replica.
	NewFeed func(Order) Feeder
	// Always lists selections that the hub follows in addition to those that Change sets. They are not shared unless Change
	// names them.
	Always []Selection
	// Eager feeds shared resources from the start, because the pool may need them from this hub. Without Eager, the first request
	// starts their feeds.
	Eager bool
	// View returns how this node's programs see one of the hub's own resources; nil means unchanged. KubeletView returns how
	// kubelet sees a selection, which may be the hub's or kubelet's own; nil means as other programs do. By default both return
	// nil.
	View        func(schema.GroupVersionResource) *View
	KubeletView func(Selection) replica.View
	// TooLarge is called for each selection that the hub stops following because of its size, with the bound in bytes. By default
	// it does nothing. It must not block, nor use the Set.
	TooLarge func(what store.Collection, most int)
	// Changed is called when a program's or a caller's selection begins or ends, and when its replica changes. It must not block,
	// nor use the Set.
	Changed func()
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Set holds all selections that the hub follows. Make one with New. While Run is not active, the Set follows nothing and the
// cloud answers programs' requests.
type Set struct {
	cfg    Config
	stored storedPods
	kept   int // is maxKept but in a test

	begun    chan struct{} // closed when Run has begun
	hasBegun func()

	mu      sync.Mutex
	life    context.Context // of Run; nil while it does not run
	owned   sync.WaitGroup
	shared  []schema.GroupVersionResource // what the pool shares
	members map[store.Collection]*Member
	// tooLarge maps each selection that did not fit to the time of its next try.
	tooLarge map[store.Collection]time.Time
	needs    needs
	fixed    chan struct{} // closed when the set of the hub's own selections changes
}

// New returns a Set that follows nothing yet. It does no I/O.
func New(c Config, shared []schema.GroupVersionResource) *Set {
	if c.View == nil {
		c.View = func(schema.GroupVersionResource) *View { return nil }
	}
	if c.KubeletView == nil {
		c.KubeletView = func(Selection) replica.View { return nil }
	}
	if c.TooLarge == nil {
		c.TooLarge = func(store.Collection, int) {}
	}
	s := &Set{
		cfg: c, kept: maxKept, begun: make(chan struct{}), shared: slices.Clone(shared), members: map[store.Collection]*Member{},
		tooLarge: map[store.Collection]time.Time{}, needs: needs{node: c.Node},
		fixed: make(chan struct{}),
	}
	s.hasBegun = sync.OnceFunc(func() { close(s.begun) })
	return s
}

// Begun returns a channel that is closed once Run is active. Earlier requests go to the cloud, and earlier watches stay there.
func (s *Set) Begun() <-chan struct{} { return s.begun }

// Run follows the selections until ctx ends, waits for all members, and returns nil.
func (s *Set) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.life = life
	s.bringAboutLocked()
	s.mu.Unlock()
	s.hasBegun()
	defer func() {
		s.mu.Lock()
		s.life = nil
		for _, m := range s.members {
			m.ending = true // requests go to the cloud from now on
		}
		s.tellFixedLocked()
		s.mu.Unlock()
		cancel()
		s.owned.Wait()
	}()
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tidy.C:
			s.tidy(s.cfg.Ends.Running())
		}
	}
}

// Change sets which resources are shared from now on. Resources that stay are not disturbed.
func (s *Set) Change(shared []schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = slices.Clone(shared)
	if s.life != nil {
		s.bringAboutLocked()
	}
}

// bringAboutLocked starts and ends the hub's own selections as configured. A selection that stays has a member at all times, so
// no request for it bypasses the hub. A new member waits until the old one has ended.
func (s *Set) bringAboutLocked() {
	next := map[store.Collection]Order{}
	for _, what := range s.cfg.Always {
		next[what.id(Hub)] = Order{Selection: what, Client: Hub}
	}
	for _, r := range s.shared {
		next[Whole(r).id(Hub)] = Order{Selection: Whole(r), Client: Hub, Shared: true}
	}
	for id, m := range s.members {
		if order, stays := next[id]; m.fixed() && !m.ending && (!stays || order.Shared != m.Shared) {
			klog.FromContext(s.life).Info("No longer followed", "what", m.Selection, "shared", m.Shared)
			m.ending = true
			m.end()
		}
	}
	for id, order := range next {
		old := s.members[id]
		if old != nil && !old.ending {
			continue
		}
		m := s.beginLocked(order)
		if order.Shared && s.cfg.Eager || old != nil && old.isWanted() { // whoever needed the old one needs the new one
			m.want()
		}
	}
	s.tellFixedLocked()
}

func (s *Set) tellFixedLocked() {
	close(s.fixed)
	s.fixed = make(chan struct{})
}

// beginLocked starts to follow a selection. It does no I/O.
func (s *Set) beginLocked(order Order) *Member {
	m := &Member{Order: order, wanted: make(chan struct{}), restored: make(chan struct{}), ended: make(chan struct{})}
	m.want = sync.OnceFunc(func() { close(m.wanted) })
	config := replica.Config{Resource: order.Resource}
	if !m.fixed() {
		config.HistoryBytes, config.HistoryEvents, config.Changed = historyBytes, historyEvents, s.cfg.Changed
		m.want()
	}
	m.Replica = replica.New(config)
	m.saver = NewSaver(s.cfg.Disk, m.id(), m.Replica, s.cfg.Ends.Chance)
	s.handleLocked(m)
	m.TooLarge = func() { s.giveUp(m) }
	m.feed = s.cfg.NewFeed(m.Order)
	if old := s.members[m.id()]; old != nil {
		m.after = old.ended
	}
	m.life, m.end = context.WithCancel(s.life)
	s.members[m.id()] = m
	s.owned.Go(func() { s.run(m.life, m) })
	return m
}

// handleLocked makes the handlers that serve a member.
func (s *Set) handleLocked(m *Member) {
	config := replica.HandlerConfig{
		Replica: m.Replica,
		// What clients have seen must survive a restart. Sync ends with ctx, so a full disk delays nobody beyond that.
		BeforeExpired: func(ctx context.Context) { _ = m.saver.Sync(ctx) },
		Chance:        s.cfg.Ends.Chance,
	}
	var kubelet replica.View
	switch {
	case m.fixed():
		if m.view = s.cfg.View(m.Resource); m.view != nil {
			config.View = m.view.View
		}
		kubelet = s.cfg.KubeletView(m.Selection)
	case m.Client == "":
		config.View = s.cfg.KubeletView(m.Selection)
	}
	m.handler = replica.NewHandler(config)
	m.kubelet = m.handler
	if kubelet != nil {
		config.View = kubelet
		m.kubelet = replica.NewHandler(config)
	}
}

// run follows a selection to its end.
func (s *Set) run(ctx context.Context, m *Member) {
	m.run(ctx)
	m.end()
	m.Replica.Close()
	s.mu.Lock()
	if m.forget {
		s.cfg.Disk.Drop(m.id())
	}
	if s.members[m.id()] == m {
		delete(s.members, m.id())
	}
	s.mu.Unlock()
	close(m.ended)
}

// tidy ends selections that were idle for idleTime, that are too large, or that their caller may no longer read. It also tells
// the disk which ones are in use.
func (s *Set) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return // Run is ending: members that have ended may still be needed on the disk
	}
	for _, m := range s.members {
		switch {
		case m.ending:
		case s.takenBackLocked(m, now):
			klog.FromContext(s.life).Info("Forgetting a selection that its caller may no longer read", "what", m.id())
			m.forget = true
			s.endLocked(m)
		case !m.fixed() && m.users == 0 && now.Sub(m.unused) >= idleTime && s.taken(m):
			s.endLocked(m)
		default:
			s.cfg.Disk.Touch(m.id())
		}
	}
	s.keepToBudgetLocked(now)
	s.tellNeedsLocked()
}

// takenBackLocked reports whether the cloud has denied a selection to a caller for deniedFor.
func (s *Set) takenBackLocked(m *Member, now time.Time) bool {
	if m.fixed() || m.Client == "" || !s.cfg.Cloud.Get().Answers() || !m.feed.Status().Get().Denied {
		m.denied = time.Time{}
		return false
	}
	if m.denied.IsZero() {
		m.denied = now
	}
	return now.Sub(m.denied) >= deniedFor
}

// taken reports whether the disk has written or queued the replica's content. If not, the content must stay in memory. Queued
// content counts, because the disk writes a bookmark a minute after it came, and the next one comes by then. On a hub without a
// disk, taken returns false for what Pods need.
func (s *Set) taken(m *Member) bool {
	if m.Client == "" && s.needs.all[m.Selection] && !s.cfg.Disk.Keeps() {
		return false
	}
	return s.cfg.Disk.Sink(m.id()).Position() >= m.Replica.Position()
}

// endLocked ends a member.
func (s *Set) endLocked(m *Member) {
	m.ending = true
	m.end()
	s.cfg.Changed()
}

// use returns the member of a client's selection, and starts one if there is none. The member stays at least until release.
func (s *Set) use(client string, selection Selection) (*Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		return nil, errors.New("the hub is starting or stopping")
	}
	m := s.members[selection.id(client)]
	if m == nil || m.ending {
		if err := s.fitsLocked(selection.id(client), s.cfg.Ends.Running()); err != nil {
			return nil, err
		}
		if err := s.roomLocked(client, selection); err != nil {
			return nil, err
		}
		m = s.beginLocked(Order{Selection: selection, Client: client})
		s.cfg.Changed()
	}
	m.users++
	return m, nil
}

// roomLocked returns an error if a client may not follow another selection.
func (s *Set) roomLocked(client string, selection Selection) error {
	if len(selection.Namespace)+len(selection.Fields)+len(selection.Labels) > selectorBytes {
		return fmt.Errorf("its selectors have more than %d bytes", selectorBytes)
	}
	clients := map[string]int{}
	for id, m := range s.members {
		if !m.ending {
			clients[id.Client]++
		}
	}
	most := s.kept
	if client != "" {
		most = maxGuestKept
	} else if s.cfg.KubeletView(selection) != nil {
		most += maxViewed
	}
	if clients[client] >= most {
		return fmt.Errorf("%d selections are followed already", most)
	}
	delete(clients, Hub)
	delete(clients, "")
	if client != "" && clients[client] == 0 && len(clients) >= maxGuests {
		return fmt.Errorf("%d callers are followed for already", maxGuests)
	}
	return nil
}

func (s *Set) release(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.users--; m.users == 0 {
		m.unused = s.cfg.Ends.Running()
	}
}

// find returns one of the hub's own members; nil if there is none.
func (s *Set) find(what Selection) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked(Hub, what)
}

func (s *Set) findLocked(client string, what Selection) *Member {
	if m := s.members[what.id(client)]; m != nil && !m.ending {
		return m
	}
	return nil
}

// Wanted returns one of the hub's own members and marks its content as wanted; nil if there is none.
func (s *Set) Wanted(what Selection) *Member {
	m := s.find(what)
	if m != nil {
		m.want()
	}
	return m
}

// Has reports whether the hub follows all of a resource for itself.
func (s *Set) Has(r schema.GroupVersionResource) bool { return s.find(Whole(r)) != nil }

// Shared returns the members of the pool's resources, sorted by selection, and a channel that is closed when the hub's own
// selections change.
func (s *Set) Shared() ([]*Member, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.ofLocked(Hub), func(m *Member) bool { return !m.Shared }), s.fixed
}

func (s *Set) ofLocked(client string) []*Member {
	var all []*Member
	for id, m := range s.members {
		if id.Client == client && !m.ending {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Member) int { return strings.Compare(a.String(), b.String()) })
	return all
}
