package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// maxWitnesses is how many collections the keeper has a witness from: if the node may no longer read one, another still
	// proves the history.
	maxWitnesses = 8
	// blobKey is the HistoryState's key on the disk.
	blobKey = "cloud/history"
)

// Prover asks the cloud for one object of a collection. remote.Source is one.
type Prover interface {
	// Look returns the cloud's revision and the object's: the present one if at is 0, otherwise the one as of at. object is 0 if
	// there is no such object. Look fails with stream.ErrExpired if the cloud has forgotten that revision.
	Look(ctx context.Context, key stream.Key, at edge.Revision) (current, object edge.Revision, err error)
}

// Witness is an object as a hub has seen it.
type Witness struct {
	From     Prover
	Key      stream.Key
	Revision edge.Revision
	// Held is the revision up to which the hub knows the collection.
	Held edge.Revision
	// History is the history in which it was seen.
	History edge.History
}

// HistoryState is what the hub knows about the cloud's history.
type HistoryState struct {
	// Number is the number of the cloud's history, as far as is known.
	Number edge.History
	// Floor is the revision below which the hub's content must not be resumed at the cloud.
	Floor edge.Revision
	// Sure says that Number was verified, or that there is nothing to verify it with.
	Sure bool
	// Failing says that the cloud did not answer when it was asked.
	Failing bool
}

// HistoryDisk keeps a HistoryState. store.Store is one.
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
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// HistoryKeeper follows the cloud's history. Make one with NewHistory. Safe for concurrent use.
type HistoryKeeper struct {
	config HistoryConfig
	state  *live.Value[HistoryState]
	asked  chan struct{} // there is something to verify

	mu        sync.Mutex
	witnesses map[Prover]Witness
	proven    edge.Revision // up to here this history is proven, since Sure was last lost
	losses    int           // how often Sure was lost
}

// NewHistory returns a HistoryKeeper that begins with the disk's HistoryState.
func NewHistory(c HistoryConfig) *HistoryKeeper {
	k := &HistoryKeeper{
		config: c, state: live.NewValue(HistoryState{}), asked: make(chan struct{}, 1), witnesses: map[Prover]Witness{},
	}
	if kept, err := c.Disk.Blob(blobKey); err == nil {
		k.state.Set(decode(kept))
	}
	return k
}

// State returns what is known, now and as it changes.
func (k *HistoryKeeper) State() *live.Value[HistoryState] { return k.state }

// Saw records a witness that the cloud itself showed while the HistoryState is Sure.
func (k *HistoryKeeper) Saw(w Witness) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Get()
	if w.History != s.Number || !s.Sure {
		return
	}
	k.keepLocked(w)
	k.proven = max(k.proven, w.Revision, w.Held)
}

// Prove asks for proof of a witness whose content comes from the disk or the pool and is to be resumed at the cloud. The
// HistoryState is not Sure until the witness is proven.
func (k *HistoryKeeper) Prove(w Witness) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Get()
	switch {
	case w.History > s.Number:
		k.raiseLocked(w.History)
	case w.History < s.Number, w.Held < s.Floor:
		return // it cannot be resumed anyway
	}
	k.keepLocked(w)
	if w.Revision > k.proven {
		k.loseLocked()
	}
}

// Followed is a HistoryKeeper for what the hub reads with a caller's credentials. It offers only the HistoryState and takes no
// witnesses: the caller lent its credentials for its own reads, not for the hub's questions, and may revoke them.
type Followed struct{ *HistoryKeeper }

// Saw does nothing.
func (Followed) Saw(Witness) {}

// Prove does nothing.
func (Followed) Prove(Witness) {}

func (k *HistoryKeeper) keepLocked(w Witness) {
	if w.From == nil || w.Revision == 0 {
		return
	}
	if has, ok := k.witnesses[w.From]; ok && has.History == w.History && has.Revision > w.Revision {
		has.Held = max(has.Held, w.Held)
		w = has
	}
	k.witnesses[w.From] = w
	if len(k.witnesses) <= maxWitnesses {
		return
	}
	least := w
	for _, each := range k.witnesses {
		if each.Revision < least.Revision {
			least = each
		}
	}
	delete(k.witnesses, least.From)
}

// Shaken records that a stream from the cloud broke: the server may have restarted on another store.
func (k *HistoryKeeper) Shaken() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proven = 0
	k.loseLocked()
}

// loseLocked withdraws Sure.
func (k *HistoryKeeper) loseLocked() {
	k.losses++
	s := k.state.Get()
	s.Sure, s.Failing = false, false
	k.state.Set(s)
	select {
	case k.asked <- struct{}{}:
	default:
	}
}

// Number is the number of the cloud's history, as far as is known.
func (k *HistoryKeeper) Number() edge.History { return k.state.Get().Number }

// Went records that the cloud showed an object at one revision, and later at another. The History of from and to is what Number
// returned before each question. Within one history no object's revision falls. So a lower revision proves another history, even
// if all witnesses are unchanged: they may not have changed since the backup.
func (k *HistoryKeeper) Went(ctx context.Context, from, to edge.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number := k.state.Get().Number; from.History == number && to.History == number && to.Before(from) {
		k.changedLocked(klog.FromContext(ctx).WithValues("seen", from.Revision.String(), "revision", to.Revision.String()))
	}
}

// changedLocked records that the cloud's history has changed.
func (k *HistoryKeeper) changedLocked(logger klog.Logger) {
	next := k.state.Get().Number + 1
	k.raiseLocked(next)
	logger.Info("The cloud's history has changed: it was restored from a backup, or rebuilt. Reading everything anew",
		"history", next)
}

// Raise records that a pool member knows of a later history.
func (k *HistoryKeeper) Raise(n edge.History) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.raiseLocked(n)
}

func (k *HistoryKeeper) raiseLocked(n edge.History) {
	s := k.state.Get()
	if n <= s.Number {
		return
	}
	clear(k.witnesses)
	s.Number, s.Floor = n, 0
	k.proven = 0
	k.state.Set(s)
	k.write(s)
}

// Run verifies the history whenever it is not Sure, until ctx ends, and returns nil.
func (k *HistoryKeeper) Run(ctx context.Context) error {
	was, pause := false, run.Backoff{Min: historyPauseMin, Max: historyPauseMax}
	for ctx.Err() == nil {
		state, changed := k.config.Link.Watch()
		up := state.Reachable()
		if was && !up {
			k.Shaken()
		}
		was = up
		var again <-chan time.Time
		if up && !k.state.Get().Sure {
			err := k.verify(ctx)
			if err == nil {
				pause.Reset()
				continue
			}
			if ctx.Err() != nil {
				return nil //nolint:nilerr // asked to stop
			}
			k.fail()
			klog.FromContext(ctx).Info("Cannot tell whether the cloud's history is the known one; trying again", "err", err)
			again = time.After(pause.Next(k.config.Chance.Float64()))
		}
		asked := k.asked
		if again != nil {
			asked = nil // one question at a time
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-asked:
		case <-again:
		}
	}
	return nil
}

// verify asks the cloud about the newest witness and records the conclusion.
func (k *HistoryKeeper) verify(ctx context.Context) error {
	w, held, losses := k.newest()
	verdict, now := Same, Answer{}
	if w.From != nil {
		var err error
		if verdict, now, err = queryWitness(ctx, w, held); err != nil {
			if denied(err) {
				k.dismiss(w)
				return k.verify(ctx) // ask another witness
			}
			return fmt.Errorf("ask the cloud for %s as of revision %s: %w", w.Key, w.Revision, err)
		}
	}
	k.conclude(ctx, w, verdict, now, losses)
	return nil
}

// newest returns the witness with the highest revision, and the highest revision that any witness's collection is known up to.
func (k *HistoryKeeper) newest() (best Witness, held edge.Revision, losses int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	number := k.state.Get().Number
	for _, w := range k.witnesses {
		if w.History != number {
			continue
		}
		held = max(held, w.Held)
		if w.Revision > best.Revision {
			best = w
		}
	}
	return best, held, k.losses
}

// fail records that the cloud did not answer.
func (k *HistoryKeeper) fail() {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Get()
	s.Failing = true
	k.state.Set(s)
}

func (k *HistoryKeeper) dismiss(w Witness) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.witnesses, w.From)
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
	then := There
	_, object, err := w.From.Look(ctx, w.Key, w.Revision)
	switch {
	case errors.Is(err, stream.ErrExpired):
		then = Forgotten
	case err != nil && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		then = Ahead
	case err != nil:
		return Ask, now, err
	case object != w.Revision:
		then = Other
	}
	return Conclude(then), now, nil
}

func (k *HistoryKeeper) conclude(ctx context.Context, w Witness, verdict Verdict, now Answer, losses int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Get()
	lost := losses != k.losses
	if lost && verdict == Same || w.From != nil && w.History != s.Number {
		return // there is now something else to verify
	}
	logger := klog.FromContext(ctx).WithValues("object", w.Key, "seen", w.Revision.String(), "revision", now.Current.String())
	switch verdict {
	case Changed:
		k.changedLocked(logger)
		s = k.state.Get()
	case Unknown:
		s.Floor = now.Current
		k.proven = now.Current
		k.write(s)
		logger.Info("The cloud no longer remembers the revision at which it was last seen; reading anew instead of resuming")
	default:
		k.proven = max(k.proven, w.Revision)
	}
	s.Sure, s.Failing = !lost, false
	k.state.Set(s)
}

func (k *HistoryKeeper) write(s HistoryState) {
	_ = k.config.Disk.PutBlob(blobKey, encode(s)) // without it, the next start finds out again
}

func encode(s HistoryState) []byte { return fmt.Appendf(nil, "%d %d", s.Number, s.Floor) }

// decode parses encode's output; for anything else it returns the zero HistoryState.
func decode(text []byte) (s HistoryState) {
	number, floor, found := strings.Cut(string(text), " ")
	n, err := strconv.ParseUint(number, 10, 64)
	f, err2 := strconv.ParseUint(floor, 10, 64)
	if !found || err != nil || err2 != nil {
		return HistoryState{}
	}
	return HistoryState{Number: edge.History(n), Floor: edge.Revision(f)}
}

// denied reports whether an error concerns only this collection, so that another witness may be asked about.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err)
}
