package appset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
)

const (
	// AnnotationConfirmRemoval is on a YurtAppSet. A person says with it how many of the removals that wait are meant: if that is
	// their number, they go at once.
	AnnotationConfirmRemoval = "apps.openyurt.io/confirm-removal"

	// ReasonRemovalWaits is the reason of a condition while a Brake holds removals back.
	ReasonRemovalWaits = "RemovalWaits"

	// doubtFor is how long a removal waits that may be a mistake. Then spec.rollout.maxUnavailable of all go in each pace.
	doubtFor, pace = 10 * time.Minute, time.Minute
)

// Brake holds back the removal of what is no longer asked for. One removal, or a tenth of all, goes at once. More in ten minutes
// may be a mistake, such as a selector with a typo, or an object that is deleted and made again. They wait for ten minutes, and
// then go little by little. The ten minutes also stop a mistake that comes pool by pool.
//
// A Brake is memory alone: after a restart each removal waits anew. What somebody deletes is no matter of a Brake, because a
// deletion can't be taken back.
type Brake struct {
	// What is what people call the objects.
	What string
	// since says since when what leaves has not been asked for. went says when the last ones were let go.
	since, went map[types.UID]time.Time
}

// Held is what a Brake holds back; the zero Held is nothing.
type Held struct {
	Objects []client.Object
	// Message says why they stay, and what to do.
	Message string
	// Again is after how long to ask again though nothing has changed.
	Again time.Duration
}

// Let returns which of the leaving objects to remove now, and which are held. An object that was let go and is still there is let
// go again. of is how many objects there are, those that leave among them. The YurtAppSet says how fast they go, whether they are
// paused, and how many are confirmed.
func (b *Brake) Let(set *v1beta1.YurtAppSet, leaving []client.Object, of int, now time.Time) (free []client.Object, held Held) {
	before := b.since
	b.since = make(map[types.UID]time.Time, len(leaving))
	var waits []client.Object
	for _, o := range leaving {
		uid := o.GetUID()
		b.since[uid] = now
		if at, ok := before[uid]; ok {
			b.since[uid] = at
		}
		if now.Sub(b.went[uid]) < doubtFor {
			free = append(free, o)
		} else {
			waits = append(waits, o)
		}
	}
	maps.DeleteFunc(b.went, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= doubtFor })
	if len(waits) == 0 {
		return free, Held{}
	}
	since := func(o client.Object) time.Time { return b.since[o.GetUID()] }
	slices.SortStableFunc(waits, func(x, y client.Object) int { return since(x).Compare(since(y)) })
	n := b.lets(set, waits, of, now)
	if b.went == nil {
		b.went = make(map[types.UID]time.Time)
	}
	for _, o := range waits[:n] {
		b.went[o.GetUID()] = now
	}
	free, held.Objects = append(free, waits[:n]...), waits[n:]
	if len(held.Objects) > 0 {
		oldest := since(held.Objects[0])
		held.Message, held.Again = b.why(set, len(held.Objects), of, oldest.Add(doubtFor)), b.again(oldest, now)
	}
	return free, held
}

// lets returns how many of those that wait, the first of which wait for the longest, to remove now.
func (b *Brake) lets(set *v1beta1.YurtAppSet, waits []client.Object, of int, now time.Time) (n int) {
	all, lately := of, 0
	for uid, at := range b.went {
		if _, there := b.since[uid]; !there {
			all++
		}
		if now.Sub(at) < pace {
			lately++
		}
	}
	few := max(1, all/10)
	rollout := cmp.Or(set.Spec.Rollout, &v1beta1.Rollout{})
	switch {
	case len(b.went)+len(waits) <= few, set.Annotations[AnnotationConfirmRemoval] == strconv.Itoa(len(waits)):
		return len(waits)
	case rollout.Paused:
		return 0
	}
	room := most(rollout, all) - lately
	for n < min(room, len(waits)) && now.Sub(b.since[waits[n].GetUID()]) >= doubtFor {
		n++
	}
	return n
}

// again returns when one may go that waits: the oldest has waited for long enough, the pace allows more, or those that went are
// no longer counted.
func (b *Brake) again(oldest, now time.Time) time.Duration {
	soonest := doubtFor
	sooner := func(at time.Time) {
		if d := at.Sub(now); d > 0 {
			soonest = min(soonest, d)
		}
	}
	sooner(oldest.Add(doubtFor))
	for _, at := range b.went {
		sooner(at.Add(pace))
		sooner(at.Add(doubtFor))
	}
	return soonest
}

// why says to people why so many stay.
func (b *Brake) why(set *v1beta1.YurtAppSet, n, of int, until time.Time) string {
	rollout := cmp.Or(set.Spec.Rollout, &v1beta1.Rollout{})
	stay := fmt.Sprintf("stay until %s, and then go at most %d a minute", until.UTC().Format(time.RFC3339), most(rollout, of))
	if rollout.Paused {
		stay = fmt.Sprintf("stay while spec.rollout.paused of YurtAppSet %s/%s is true", set.Namespace, set.Name)
	}
	return fmt.Sprintf("%d of %d %s are no longer asked for. That may be a mistake, so they %s. To remove them now: "+
		"kubectl annotate yurtappset %s -n %s --overwrite %s=%d", n, of, b.What, stay, set.Name, set.Namespace,
		AnnotationConfirmRemoval, n)
}
