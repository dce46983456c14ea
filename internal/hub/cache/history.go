package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// askTime bounds one question to the cloud.
	askTime = 10 * time.Second
	// historyPauseMin and historyPauseMax bound the pause after an unanswered question: see run.Backoff.
	historyPauseMin, historyPauseMax = 250 * time.Millisecond, 5 * time.Second
	// maxWitnesses bounds the Witnesses of a ResourceHistory; each collection has one at most. If the node may no longer read one
	// collection, the hub asks the cloud about the Witness of another.
	maxWitnesses = 8
	// maxQuestions bounds the questions under way at a time.
	maxQuestions = 8
	// changesAtOnce is how many changes of the history make the hub stop believing its pool (HistoryState.Alone). One change is
	// forgotten in each changesEvery. A restored cloud makes one change, or a few if its API servers come back one after another.
	changesAtOnce, changesEvery = 6, 6 * time.Hour
	// trustAfter ends HistoryState.Alone early: if the cloud has not answered for this time, the hub believes its pool again. The
	// time is long, because an attacker on the LAN can also cause short outages.
	trustAfter = 10 * time.Minute
	// blobKey is the number's key on the disk.
	blobKey = "cloud/history"
)

// Prover asks the cloud for one object of a collection. remote.Source is one.
type Prover interface {
	// Look returns the cloud's current revision, and that of one object; 0 means that there is no such object. If at is not 0,
	// both results are as of that past revision. Look fails with stream.ErrExpired if the cloud has forgotten that revision. The
	// zero key means the first object of the collection.
	Look(ctx context.Context, key stream.Key, at edge.Revision) (current, object edge.Revision, err error)
}

// Witness is an object as a hub has seen it, or an empty collection.
type Witness struct {
	From Prover
	// Key and Revision are those of the collection's newest object; zero if the collection is empty.
	Key      stream.Key
	Revision edge.Revision
	// Held is the revision up to which the hub knows the collection.
	Held edge.Revision
	// History is the history in which the hub saw the object.
	History edge.History
}

// HistoryState is what the hub knows about the cloud's history from one resource.
type HistoryState struct {
	// Number is the number of the cloud's history, as far as is known.
	Number edge.History
	// Floor is the cloud's revision at the time when the cloud could not say whether the hub's content belongs to this history; 0
	// means that there was no such time. Before the hub resumes content below Floor at the cloud, it lists the cloud once.
	Floor edge.Revision
	// Sure says that this resource's witness has verified Number, or that nothing is held to verify it with.
	Sure bool
	// Failing says that the hub's question about the witness got no answer. Refused is the answer of an API server that refused
	// the question; empty means that none did. Stranger says that this answer was 401.
	Failing  bool
	Refused  string
	Stranger bool
	// Alone is the time (ends.Clock.Running) at which the hub begins to read its pool again. Until then the hub reads nothing
	// there, because the history has changed more often than clouds are restored, and the pool may be the cause.
	Alone time.Time
}

// HistoryDisk keeps the history's number. store.Store is one.
type HistoryDisk interface {
	Blob(key string) ([]byte, error)
	PutBlob(key string, value []byte) error
}

// HistoryConfig configures a HistoryKeeper.
type HistoryConfig struct {
	// Link is the state of the link to the cloud.
	Link *live.Value[link.State]
	// Disk keeps the number over a restart.
	Disk HistoryDisk
	// Ends has the running clock, and random numbers.
	Ends ends.Ends
}

// HistoryKeeper follows the cloud's history. Make one with NewHistory. Safe for concurrent use.
type HistoryKeeper struct {
	config HistoryConfig
	places chan struct{} // of questions under way

	mu     sync.Mutex
	number edge.History
	rises  *rate.Limiter // of number, by the running clock
	alone  time.Time     // HistoryState.Alone
	of     map[reader]*ResourceHistory
	ask    func(*ResourceHistory) // settles one in the background; nil while Run does not run
}

// reader is a client that reads a resource.
type reader struct {
	client   string
	resource schema.GroupResource
}

// ResourceHistory is what the hub knows about the cloud's history from one resource, as one client reads it.
type ResourceHistory struct {
	keeper *HistoryKeeper
	id     reader
	state  *live.Value[HistoryState]

	// The keeper's lock guards these.
	users     int
	witnesses map[Prover]Witness
	proven    edge.Revision // up to here this history is proven, since Sure was last lost
	losses    int           // how often Sure was lost
	asking    bool          // the keeper settles it
}

// NewHistory returns a HistoryKeeper that begins with the disk's number.
func NewHistory(c HistoryConfig) *HistoryKeeper {
	k := &HistoryKeeper{
		config: c, places: make(chan struct{}, maxQuestions), rises: rate.NewLimiter(rate.Every(changesEvery), changesAtOnce),
		of: map[reader]*ResourceHistory{},
	}
	if kept, err := c.Disk.Blob(blobKey); err == nil {
		n, _ := strconv.ParseUint(string(kept), 10, 64) // 0 if it is none
		k.number = edge.History(n)
	}
	return k
}

// Of returns the ResourceHistory of a resource that a client reads. The caller must call Leave.
func (k *HistoryKeeper) Of(client string, resource schema.GroupResource) *ResourceHistory {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := reader{client, resource}
	h := k.of[id]
	if h == nil {
		h = &ResourceHistory{
			keeper: k, id: id, witnesses: map[Prover]Witness{},
			state: live.NewValue(HistoryState{Number: k.number, Alone: k.alone}),
		}
		k.of[id] = h
		h.askLocked()
	}
	h.users++
	return h
}

// Leave ends the caller's use of a ResourceHistory. When its last user leaves, its knowledge is dropped.
func (h *ResourceHistory) Leave() {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(h.keeper.of, h.id)
	}
}

// State returns what is known, now and as it changes.
func (h *ResourceHistory) State() *live.Value[HistoryState] { return h.state }

// Saw records a witness that the cloud itself showed while the HistoryState is Sure.
func (h *ResourceHistory) Saw(w Witness) {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	s := h.state.Get()
	if w.History != s.Number || !s.Sure {
		return
	}
	h.keepLocked(w)
	h.proven = max(h.proven, w.Revision, w.Held)
}

// Prove records a witness from the disk or the pool. Call it before a feed resumes the witness's collection at the cloud. If the
// witness is newer than what the cloud has confirmed, the HistoryState is not Sure until the cloud has confirmed the witness.
func (h *ResourceHistory) Prove(w Witness) {
	k := h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	s := h.state.Get()
	switch {
	case w.History > s.Number:
		k.raiseLocked(w.History)
	case w.History < s.Number, w.Held < s.Floor:
		return // it cannot be resumed anyway
	}
	h.keepLocked(w)
	if h.proven == 0 || w.Revision > h.proven {
		h.loseLocked()
	}
}

// Raise records a later history that the feed believes: the cloud has gone back, or the pool is in that Believable history.
func (h *ResourceHistory) Raise(n edge.History) {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	h.keeper.raiseLocked(n)
}

func (h *ResourceHistory) keepLocked(w Witness) {
	if w.From == nil {
		return
	}
	if has, ok := h.witnesses[w.From]; ok && has.History == w.History && has.Revision > w.Revision {
		has.Held = max(has.Held, w.Held)
		w = has
	}
	h.witnesses[w.From] = w
	if len(h.witnesses) <= maxWitnesses {
		return
	}
	least := w
	for _, each := range h.witnesses {
		if each.Revision < least.Revision {
			least = each
		}
	}
	delete(h.witnesses, least.From)
}

// Shaken records that a stream from the cloud broke: the server may have restarted on another store.
func (h *ResourceHistory) Shaken() {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	h.shakeLocked()
}

func (h *ResourceHistory) shakeLocked() {
	h.proven = 0
	h.loseLocked()
}

// loseLocked withdraws Sure.
func (h *ResourceHistory) loseLocked() {
	h.losses++
	s := h.state.Get()
	s.Sure, s.Failing, s.Refused, s.Stranger = false, false, "", false
	h.state.Set(s)
	h.askLocked()
}

func (h *ResourceHistory) askLocked() {
	if ask := h.keeper.ask; ask != nil && !h.asking {
		h.asking = true
		ask(h)
	}
}

// Number is the number of the cloud's history, as far as is known.
func (k *HistoryKeeper) Number() edge.History {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.number
}

// Went records two revisions at which the cloud has shown one object: first from, then to. Within one history no object's
// revision falls, so a lower one shows a change of history, even if no witness has changed since the backup. The History of each
// moment must be what Number returned before the caller asked the cloud.
func (k *HistoryKeeper) Went(ctx context.Context, from, to edge.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from.History == k.number && to.History == k.number && to.Before(from) {
		k.changedLocked(klog.FromContext(ctx).WithValues("seen", from.Revision.String(), "revision", to.Revision.String()))
	}
}

// changedLocked records that the cloud's history has changed.
func (k *HistoryKeeper) changedLocked(logger klog.Logger) {
	k.raiseLocked(k.number + 1)
	logger.Info("The cloud's history has changed: it was restored from a backup, or rebuilt. Reading everything anew",
		"history", k.number)
}

// Raise records that a pool member knows of a later history. It takes the history only if n is Believable and the hub is not
// alone (HistoryState.Alone). It reports whether the hub is now in the history n, or in a later one.
func (k *HistoryKeeper) Raise(n edge.History) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n.Believable() && !k.config.Ends.Running().Before(k.alone) {
		k.raiseLocked(n)
	}
	return n <= k.number
}

// raiseLocked begins a later history for all resources. The hub lists each of them anew, even if the cloud restored the store of
// only one.
func (k *HistoryKeeper) raiseLocked(n edge.History) {
	if n <= k.number {
		return
	}
	k.number = n
	now := k.config.Ends.Running()
	if k.rises.AllowN(now, 1); k.rises.TokensAt(now) < 1 {
		k.alone = now.Add(changesEvery)
		klog.Background().Info("The cloud's history has changed more often than clouds are restored. This hub reads nothing in "+
			"its pool until the time is over, or the cloud is away for a while", "history", n, "for", changesEvery)
	}
	for _, h := range k.of {
		s := h.state.Get()
		s.Number, s.Floor, s.Alone, h.proven = n, 0, k.alone, 0
		clear(h.witnesses)
		h.state.Set(s)
	}
	_ = k.config.Disk.PutBlob(blobKey, strconv.AppendUint(nil, uint64(n), 10)) // without it, the next start finds out again
}

// Run verifies the history with each resource that is not Sure, until ctx ends, and returns nil.
func (k *HistoryKeeper) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	k.mu.Lock()
	k.ask = func(h *ResourceHistory) { asking.Go(func() { h.settle(ctx) }) }
	for _, h := range k.of {
		h.askLocked()
	}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ask = nil
	}()
	away := time.NewTimer(trustAfter)
	defer away.Stop()
	for was, answered := false, false; ; {
		state, changed := k.config.Link.Watch()
		up := state.Reachable()
		if was && !up {
			k.shaken()
		}
		if was = up; answered != state.Answers() {
			if answered = !answered; answered {
				away.Stop()
			} else {
				away.Reset(trustAfter)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-away.C:
			k.trust()
		}
	}
}

// trust ends the time in which the hub reads nothing in its pool.
func (k *HistoryKeeper) trust() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alone.IsZero() {
		return
	}
	k.alone = time.Time{}
	for _, h := range k.of {
		s := h.state.Get()
		s.Alone = k.alone
		h.state.Set(s)
	}
}

// shaken withdraws Sure from all resources, because the link was lost.
func (k *HistoryKeeper) shaken() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.of {
		h.shakeLocked()
	}
}

// settle asks the cloud until the HistoryState is Sure, or ctx ends.
func (h *ResourceHistory) settle(ctx context.Context) {
	k := h.keeper
	for pause := (run.Backoff{Min: historyPauseMin, Max: historyPauseMax}); ; {
		state, changed := k.config.Link.Watch()
		var again <-chan time.Time
		if state.Reachable() {
			err := h.verify(ctx)
			if ctx.Err() != nil || h.settled(err) {
				return
			}
			if err == nil {
				continue // there is something else to verify
			}
			klog.FromContext(ctx).Info("Cannot tell whether the cloud's history is the known one; trying again",
				"resource", h.id.resource.String(), "client", h.id.client, "err", err)
			again = time.After(pause.Next(k.config.Ends.Float64()))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// settled records how a question ended, and reports whether to ask no further one.
func (h *ResourceHistory) settled(err error) bool {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	s := h.state.Get()
	switch {
	case err == nil:
	case unanswered(err):
		s.Failing, s.Refused, s.Stranger = true, "", false
	default:
		s.Failing, s.Refused, s.Stranger = false, err.Error(), stranger(err)
	}
	h.state.Set(s)
	h.asking = !s.Sure && h.users > 0
	return !h.asking
}

// verify asks the cloud about the newest witness and records the conclusion.
func (h *ResourceHistory) verify(ctx context.Context) error {
	select {
	case h.keeper.places <- struct{}{}:
		defer func() { <-h.keeper.places }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		w, held, losses := h.newest()
		if w.From == nil {
			h.conclude(ctx, w, Same, Answer{}, losses)
			return nil
		}
		verdict, now, err := queryWitness(ctx, w, held)
		switch {
		case err == nil:
			h.conclude(ctx, w, verdict, now, losses)
			return nil
		case !denied(err):
			return fmt.Errorf("ask the cloud for %s as of revision %s: %w", w.Key, w.Revision, err)
		}
		h.dismiss(w) // ask another witness
	}
}

// newest returns the witness with the highest revision. held is the highest Held of any witness, and losses says how often Sure
// was lost.
func (h *ResourceHistory) newest() (best Witness, held edge.Revision, losses int) {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	for _, w := range h.witnesses {
		if w.History != h.keeper.number {
			continue
		}
		held = max(held, w.Held)
		if best.From == nil || w.Revision > best.Revision {
			best = w
		}
	}
	return best, held, h.losses
}

func (h *ResourceHistory) dismiss(w Witness) {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	delete(h.witnesses, w.From)
}

func queryWitness(ctx context.Context, w Witness, held edge.Revision) (Verdict, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var now Answer
	var err error
	if now.Current, now.Object, err = w.From.Look(ctx, w.Key, 0); err != nil {
		return Ask, now, err
	}
	verdict := Compare(w.Revision, held, now)
	if verdict != Ask {
		return verdict, now, nil
	}
	_, object, err := w.From.Look(ctx, w.Key, w.Revision)
	switch {
	case errors.Is(err, stream.ErrExpired):
		return Unknown, now, nil
	case err != nil && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return Changed, now, nil // the cloud has not reached that revision
	case err != nil:
		return Ask, now, err
	case object != w.Revision:
		return Changed, now, nil
	default:
		return Same, now, nil
	}
}

func (h *ResourceHistory) conclude(ctx context.Context, w Witness, verdict Verdict, now Answer, losses int) {
	k := h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	lost := losses != h.losses
	if lost && verdict == Same || w.From != nil && w.History != k.number {
		return // there is now something else to verify
	}
	logger := klog.FromContext(ctx).WithValues("resource", h.id.resource.String(), "client", h.id.client,
		"object", w.Key, "seen", w.Revision.String(), "revision", now.Current.String())
	switch verdict {
	case Changed:
		k.changedLocked(logger)
	case Unknown:
		h.proven = now.Current
		logger.Info("The cloud no longer remembers the revision at which it was last seen; reading anew instead of resuming")
	default:
		h.proven = max(h.proven, w.Revision)
	}
	s := h.state.Get()
	if verdict == Unknown {
		s.Floor = now.Current
	}
	s.Sure, s.Failing, s.Refused, s.Stranger = !lost, false, "", false
	h.state.Set(s)
}

// denied reports whether an error concerns only this collection, so that another witness may be asked about.
func denied(err error) bool { return deniedPast(err) && !stranger(err) }
