package compare

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

const (
	// lookEvery is how often a follower looks whether something is due, or can be judged.
	lookEvery = 2 * time.Second

	// callTimeout bounds the question for one object or for a number. A list has the limits of package remote.
	callTimeout = 20 * time.Second

	// late is how long a replica may take to come as far as the cloud was: an API server tells a quiet resource's watch once a
	// minute how far it is, the leader tells the coordinator, and that tells us.
	late = 5 * time.Minute
	// patience is how often in a row that may be too late before it counts as a lie.
	patience = 3

	// sure is how many looks in a row must show the same lie: the first, and two more answers of the cloud's, which may come from
	// other servers.
	sure = 3

	// again is how long after a look the next one at the same object is: by then a cloud that was restored from a backup is known
	// to be in another history, and what was asked before is void.
	again = 20 * time.Second

	// most is how many looks wait to be judged, and how many objects of one list are looked at again.
	most = 64

	// youngPool and oldPool are the parts of a period after which a follower asks who else compares: first soon after there is a
	// leader, then half as often each time. A pool that has just started shows its nodes one by one, and each follower
	// would compare for those that it does not see: in a pool of ten, four times what all may together.
	youngPool, oldPool = 60, 4

	// tellEvery is how often the same lie of the same leader is told.
	tellEvery = time.Hour
)

type digest [sha256.Size]byte

// digestOf returns the digest of an object. In JSON fields may come in any order, and kind and apiVersion may be absent.
func digestOf(raw []byte) digest {
	if len(raw) > 0 && raw[0] == '{' {
		var fields map[string]any
		if json.Unmarshal(raw, &fields) == nil {
			delete(fields, "kind")
			delete(fields, "apiVersion")
			if sorted, err := json.Marshal(fields); err == nil {
				raw = sorted
			}
		}
	}
	return sha256.Sum256(raw)
}

func seenOf(o stream.Object, found bool) seen {
	if !found {
		return seen{}
	}
	return seen{found: true, revision: o.Revision, digest: digestOf(o.Raw)}
}

// Replica is what this hub has of a resource. replica.Replica is one.
type Replica interface {
	Snapshot(ctx context.Context) (stream.Snapshot, error)
	Get(key stream.Key) (stream.Object, bool)
	Position() edge.Revision
	History() edge.History
}

// Cloud answers questions about a resource, in its newest state. remote.Source is one.
type Cloud interface {
	// One returns a Snapshot of one object, or of none.
	One(ctx context.Context, key stream.Key) (stream.Snapshot, error)
	// Count returns how many objects there are, as of a revision.
	Count(ctx context.Context) (int, edge.Revision, error)
	Snapshot(ctx context.Context) (stream.Snapshot, error)
}

// Resource is one that the pool shares.
type Resource struct {
	// Name is as in "endpointslices.discovery.k8s.io".
	Name    string
	Replica Replica
	Cloud   Cloud
	// Fed reports whether the coordinator feeds the replica now.
	Fed func() bool
}

// Config is what a Comparer needs. All fields are required unless it says otherwise.
type Config struct {
	Node edge.NodeName
	// Standing is this hub's place in its pool, CloudLink the state of its link to the cloud.
	Standing  *live.Value[role.Standing]
	CloudLink *live.Value[link.State]
	// Resources are those that the pool shares. Two calls return the same one under the same name, or another.
	Resources func() []Resource
	// Followers returns the nodes that can compare, this one among them: those with a link of their own, without the leader.
	Followers func(ctx context.Context, leader edge.NodeName) ([]edge.NodeName, error)
	// Timing says how often they compare; a Period of 0 means never.
	Timing func() Timing
	// Spent is how many bytes have been carried for it.
	Spent func() int64
	// Tell tells the cloud of a lie.
	Tell func(ctx context.Context, lie Lie) error
	// Wall is the time by which windows are counted, the same for all of a pool. nil means the machine's.
	Wall func() time.Time
	// Metrics takes the metrics of comparisons. nil means that nobody sees them.
	Metrics prometheus.Registerer
}

// Lie is what a coordinator said that the cloud does not.
type Lie struct {
	Resource string
	// Key is the object; empty if it is about the resource as a whole.
	Key stream.Key
	// Kind is omitted, invented, differs, ahead or withheld.
	Kind string
	// Leader leads now, for so many transitions. Earlier are the others who have led since the resource was last found right as a
	// whole, as far as this hub knows.
	Leader      edge.NodeName
	Transitions int32
	Earlier     []edge.NodeName
}

// Comparer compares while its hub follows. Make one with New.
type Comparer struct {
	cfg         Config
	comparisons *prometheus.CounterVec
	lies        *prometheus.CounterVec
	bytes       prometheus.Counter
}

// New returns a Comparer. It registers its metrics.
func New(c Config) *Comparer {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	m := promauto.With(c.Metrics)
	return &Comparer{
		cfg: c,
		comparisons: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_pool_comparisons_total",
			Help: "Comparisons of what the pool's coordinator says with the cloud, by this hub while it follows: of objects, " +
				"by what came of it, and of whole resources (listed).",
		}, []string{"result"}),
		lies: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_pool_lies_total",
			Help: "Lies of the pool's coordinator about what the pool shares, by the node that led when they were found.",
		}, []string{"leader", "resource", "kind"}),
		bytes: m.NewCounter(prometheus.CounterOpts{
			Name: "yurthub_pool_comparison_bytes_total",
			Help: "Bytes that comparisons with the cloud have brought over its link.",
		}),
	}
}

// Run compares until ctx ends; it returns nil.
func (c *Comparer) Run(ctx context.Context) error {
	s := &state{Comparer: c, resources: map[string]*resource{}, told: map[tale]time.Time{}, spent: c.cfg.Spent()}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.step(ctx, time.Now())
		}
	}
}

// state is what a Comparer remembers. One goroutine touches it.
type state struct {
	*Comparer
	leader    role.Standing
	followers []edge.NodeName
	ask       time.Time     // when to ask for the followers
	askEvery  time.Duration // how long after that to ask again
	next      time.Time     // when the next object is drawn
	purse     purse
	spent     int64
	pending   []*look // wait to be judged
	repeats   []*look // wait to be asked again
	resources map[string]*resource
	told      map[tale]time.Time
}

// resource is what is remembered of one.
type resource struct {
	Resource
	history edge.History
	window  int64     // the one for which listAt holds
	listAt  time.Time // zero: not our turn, or done
	hurry   time.Time // when a list out of turn was last ordered; zero: never
	list    *listed   // waits to be judged; nil: none
	delays  int       // looks in a row that were too late
	leaders []edge.NodeName
}

// listed is all that the cloud had at a revision.
type listed struct {
	at      edge.Revision
	since   time.Time
	objects map[stream.Key]seen
}

// look is one object, or the number of objects, that the cloud was asked for.
type look struct {
	of     *resource
	key    stream.Key
	number int // -1: it is about an object
	at     edge.Revision
	cloud  seen
	since  time.Time
	// known is the revision that an object had in the cloud when the replica lacked it before; 0: it did not.
	known edge.Revision
	// was and times are the verdict of the looks before, and how many showed it.
	was   verdict
	times int
}

func (s *state) step(ctx context.Context, now time.Time) {
	timing, standing := s.cfg.Timing(), s.cfg.Standing.Get()
	follows := standing.Role == role.Follower && standing.Leader != "" && standing.Leader != s.cfg.Node
	if !follows || timing.Period <= 0 || s.cfg.CloudLink.Get() != link.Up {
		s.pending, s.repeats = nil, nil
		for _, r := range s.resources {
			r.list = nil
		}
		return
	}
	if standing != s.leader {
		s.leader, s.ask, s.askEvery = standing, now.Add(timing.Period/youngPool), timing.Period/youngPool
		maps.DeleteFunc(s.told, func(_ tale, at time.Time) bool { return now.Sub(at) >= tellEvery })
	}
	s.learn()
	s.judgeAll(ctx, now)
	if !now.Before(s.ask) {
		followers, err := s.cfg.Followers(ctx, standing.Leader)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Can't tell who else compares", "err", err)
			return
		}
		slices.Sort(followers)
		s.followers, s.ask = followers, now.Add(s.askEvery)
		s.askEvery = min(2*s.askEvery, timing.Period/oldPool)
	}
	own := slices.Index(s.followers, s.cfg.Node)
	if own < 0 {
		return
	}
	s.purse.fill(now, float64(timing.PerDay)/float64(len(s.followers)))
	if s.purse.bytes <= 0 {
		return
	}
	for _, r := range s.sorted() {
		s.turn(r, timing, own, now)
		if !r.listAt.IsZero() && !now.Before(r.listAt) && r.Fed() {
			s.takeList(ctx, r, now)
		}
	}
	repeats := s.repeats
	s.repeats = nil
	for _, l := range repeats {
		if now.Sub(l.since) >= again {
			s.look(ctx, l, now)
		} else {
			s.repeats = append(s.repeats, l)
		}
	}
	s.drawDue(ctx, timing, now)
	s.pay()
}

// learn takes in which resources there are, and who leads.
func (s *state) learn() {
	known := map[string]bool{}
	for _, r := range s.cfg.Resources() {
		known[r.Name] = true
		has := s.resources[r.Name]
		if has == nil {
			has = &resource{window: -1}
			s.resources[r.Name] = has
		}
		if has.Replica != r.Replica || has.history != r.Replica.History() || !r.Fed() {
			s.drop(has) // what was asked for was of another replica, of another history, or not from the coordinator
		}
		has.Resource, has.history = r, r.Replica.History()
		if r.Fed() && !slices.Contains(has.leaders, s.leader.Leader) {
			has.leaders = append(has.leaders, s.leader.Leader)
		}
	}
	for name, r := range s.resources {
		if !known[name] {
			s.drop(r)
			delete(s.resources, name)
		}
	}
}

func (s *state) drop(r *resource) {
	r.list, r.delays = nil, 0
	s.pending = slices.DeleteFunc(s.pending, func(l *look) bool { return l.of == r })
	s.repeats = slices.DeleteFunc(s.repeats, func(l *look) bool { return l.of == r })
}

func (s *state) sorted() []*resource {
	all := make([]*resource, 0, len(s.resources))
	for _, r := range s.resources {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *resource) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// turn finds out whether this follower lists the resource in the present window, and when.
func (s *state) turn(r *resource, timing Timing, own int, now time.Time) {
	wall := s.cfg.Wall()
	window := wall.UnixNano() / int64(timing.Window)
	if window == r.window {
		return
	}
	first := r.window < 0 // a hub that starts again and again would list each time
	r.window, r.listAt = window, time.Time{}
	if !first && lister(r.Name, window, len(s.followers)) == own {
		left := timing.Window - time.Duration(wall.UnixNano()%int64(timing.Window))
		r.listAt = now.Add(rand.N(left))
	}
}

// pay takes what was carried from the purse.
func (s *state) pay() {
	spent := s.cfg.Spent()
	s.purse.bytes -= float64(spent - s.spent)
	s.bytes.Add(float64(spent - s.spent))
	s.spent = spent
}

// takeList asks the cloud for all of a resource.
func (s *state) takeList(ctx context.Context, r *resource, now time.Time) {
	r.listAt = time.Time{}
	all, err := r.Cloud.Snapshot(ctx)
	if err != nil {
		s.unread(ctx, r, err)
		r.listAt = now.Add(late)
		return
	}
	r.list = &listed{at: all.Revision, since: now, objects: make(map[stream.Key]seen, len(all.Objects))}
	for _, o := range all.Objects {
		r.list.objects[o.Key] = seenOf(o, true)
	}
}

func (s *state) unread(ctx context.Context, r *resource, err error) {
	if ctx.Err() == nil {
		s.comparisons.WithLabelValues("unread").Inc()
		klog.FromContext(ctx).V(1).Info("Can't compare the coordinator with the cloud", "resource", r.Name, "err", err)
	}
}

// drawDue draws an object, or asks for a number, if it is time.
func (s *state) drawDue(ctx context.Context, timing Timing, now time.Time) {
	if now.Before(s.next) {
		return
	}
	all := slices.DeleteFunc(s.sorted(), func(r *resource) bool { return !r.Fed() })
	sizes := make([]int, len(all))
	var objects [][]stream.Object
	for i, r := range all {
		has, err := r.Replica.Snapshot(ctx)
		if err != nil {
			return // it is not complete
		}
		objects, sizes[i] = append(objects, has.Objects), len(has.Objects)
	}
	pause := pauseOf(timing, sizes, len(s.followers))
	if s.next.IsZero() {
		s.next = now.Add(rand.N(pause))
	}
	// Several may be due where a period is short, or after a machine has slept: no more than in one look's time.
	for range int(lookEvery/pause) + 1 {
		if len(all) == 0 || now.Before(s.next) || len(s.pending) >= most {
			return
		}
		s.next = later(s.next, now.Add(-lookEvery)).Add(jittered(nil, pause))
		which, object := draw(nil, sizes)
		if object < 0 {
			s.count(ctx, all[which], now)
		} else {
			s.look(ctx, &look{of: all[which], key: objects[which][object].Key, number: -1}, now)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// jittered returns a pause at random, of that mean.
func jittered(r *rand.Rand, mean time.Duration) time.Duration {
	if r == nil {
		return time.Duration(rand.Float64() * 2 * float64(mean))
	}
	return time.Duration(r.Float64() * 2 * float64(mean))
}

// draw chooses a resource by how often it is to be looked at, and one of its objects; -1 means its number.
func draw(r *rand.Rand, sizes []int) (which, object int) {
	pick := rand.IntN
	if r != nil {
		pick = r.IntN
	}
	total := 0
	for _, n := range sizes {
		total += looksFor(n) + countsEach
	}
	at := pick(total)
	for i, n := range sizes {
		if at < countsEach {
			return i, -1
		}
		if at -= countsEach; at < looksFor(n) {
			return i, pick(n)
		}
		at -= looksFor(n)
	}
	return 0, -1
}

// count asks the cloud how many objects a resource has.
func (s *state) count(ctx context.Context, r *resource, now time.Time) {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, at, err := r.Cloud.Count(asking)
	if err != nil {
		s.unread(ctx, r, err)
		return
	}
	s.pending = append(s.pending, &look{of: r, number: n, at: at, since: now})
}

// look asks the cloud for an object.
func (s *state) look(ctx context.Context, l *look, now time.Time) {
	r := l.of
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before, position := seenOf(r.Replica.Get(l.key)), r.Replica.Position()
	one, err := r.Cloud.One(asking, l.key)
	if err != nil {
		s.unread(ctx, r, err)
		return
	}
	l.at, l.since, l.cloud = one.Revision, now, seen{}
	for _, o := range one.Objects {
		if o.Key == l.key {
			l.cloud = seenOf(o, true)
		}
	}
	if v := judgeBefore(l.cloud, l.at, before, position); v.lie() {
		s.conclude(ctx, l, v, now)
		return
	}
	s.pending = append(s.pending, l)
}

// judgeAll judges what the replicas have come far enough for.
func (s *state) judgeAll(ctx context.Context, now time.Time) {
	pending := s.pending
	s.pending = nil
	for _, l := range pending {
		v := s.judge(l, now)
		if v == behind {
			s.pending = append(s.pending, l)
			continue
		}
		if v != withheld {
			l.of.delays = 0
		}
		s.conclude(ctx, l, v, now)
	}
	for _, r := range s.sorted() {
		s.judgeList(ctx, r, now)
	}
}

func (s *state) judge(l *look, now time.Time) verdict {
	r := l.of
	position := r.Replica.Position() // first: what the replica has is of then, or later
	var v verdict
	switch {
	case l.number < 0:
		v = judge(l.cloud, l.at, seenOf(r.Replica.Get(l.key)), position)
	case position < l.at:
		v = behind
	default:
		v = same // the list says what is wrong, if it is
	}
	if v == behind && now.Sub(l.since) >= late {
		return withheld
	}
	return v
}

// conclude does what follows from a verdict on a look.
func (s *state) conclude(ctx context.Context, l *look, v verdict, now time.Time) {
	r := l.of
	switch {
	case l.number >= 0 && v == same:
		s.counted(ctx, l, now)
		return
	case v == withheld:
		s.comparisons.WithLabelValues("behind").Inc()
		if r.delays++; r.delays >= patience {
			r.delays = 0
			s.tell(ctx, r, stream.Key{}, withheld, now)
		}
		return
	case v == missing && l.known != 0 && l.known == l.cloud.revision:
		v = omitted // it was there all the time
	}
	if v == l.was {
		l.times++
	} else {
		l.was, l.times = v, 1
	}
	switch {
	case v == changed && !l.cloud.found && l.times >= sure:
		v = invented // it changes with each look, and the cloud has never heard of it
	case v == missing && l.times >= 2*sure:
		v, l.times = omitted, sure // it changes in the cloud with each look, and the replica has never heard of it
	}
	switch {
	case v.lie() && l.times >= sure:
		s.comparisons.WithLabelValues(v.String()).Inc()
		s.tell(ctx, r, l.key, v, now)
	case v == same, v == changed && l.times >= sure:
		s.comparisons.WithLabelValues(v.String()).Inc()
	default:
		if v == missing {
			l.known = l.cloud.revision
		}
		l.since = now
		s.repeats = append(s.repeats, l)
	}
}

// counted compares numbers. Objects come and go meanwhile: only a list says more.
func (s *state) counted(ctx context.Context, l *look, now time.Time) {
	s.comparisons.WithLabelValues("counted").Inc()
	has, err := l.of.Replica.Snapshot(ctx)
	if err != nil {
		return
	}
	off := max(l.number-len(has.Objects), len(has.Objects)-l.number)
	due := l.of.hurry.IsZero() || now.Sub(l.of.hurry) >= s.cfg.Timing().Period
	if off > 0 && float64(off) >= share*float64(l.number) && due {
		l.of.hurry, l.of.listAt = now, now
	}
}

// judgeList compares all of a resource, once its replica has come as far.
func (s *state) judgeList(ctx context.Context, r *resource, now time.Time) {
	l := r.list
	if l == nil {
		return
	}
	if r.Replica.Position() < l.at {
		if now.Sub(l.since) >= late {
			r.list = nil
			s.conclude(ctx, &look{of: r, number: -1}, withheld, now)
		}
		return
	}
	r.list = nil
	has, err := r.Replica.Snapshot(ctx)
	if err != nil {
		return
	}
	s.comparisons.WithLabelValues("listed").Inc()
	wrong := 0
	repeat := func(key stream.Key, known edge.Revision) {
		if wrong++; wrong <= most {
			s.repeats = append(s.repeats, &look{of: r, key: key, number: -1, known: known, since: now})
		}
	}
	for _, o := range has.Objects {
		if v := judge(l.objects[o.Key], l.at, seenOf(o, true), has.Revision); v.lie() {
			repeat(o.Key, 0)
		}
		delete(l.objects, o.Key)
	}
	for key, cloud := range l.objects { // what is left, the replica has not
		repeat(key, cloud.revision)
	}
	if wrong == 0 {
		r.leaders = []edge.NodeName{s.leader.Leader}
	}
}

// tell counts a lie, and has the cloud know of it, once in a while for each leader, resource and kind.
func (s *state) tell(ctx context.Context, r *resource, key stream.Key, v verdict, now time.Time) {
	leader := s.leader
	s.lies.WithLabelValues(string(leader.Leader), r.Name, v.String()).Inc()
	once := tale{leader.Leader, leader.Transitions, r.Name, v}
	if last, was := s.told[once]; was && now.Sub(last) < tellEvery {
		return
	}
	lie := Lie{Resource: r.Name, Key: key, Kind: v.String(), Leader: leader.Leader, Transitions: leader.Transitions}
	for _, node := range r.leaders {
		if node != leader.Leader {
			lie.Earlier = append(lie.Earlier, node)
		}
	}
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.cfg.Tell(asking, lie)
	if err == nil {
		s.told[once] = now
	}
	klog.FromContext(ctx).Error(errors.Join(errLie, err), "The coordinator says something else than the cloud",
		"resource", lie.Resource, "object", key.String(), "kind", lie.Kind, "leader", lie.Leader,
		"transitions", lie.Transitions, "earlierLeaders", lie.Earlier)
}

var errLie = errors.New("the pool's leader lies, or its machine is in other hands: see docs/threat-model.md")

// tale is what is told once.
type tale struct {
	leader      edge.NodeName
	transitions int32
	resource    string
	kind        verdict
}
