package coordinator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

const (
	// Finalizer is our finalizer on YurtCoordinators. Other packages read it, too.
	Finalizer = edge.FinalizerCoordinator

	// mergePatch is written by hand, and contains only what must change.
	mergePatch = types.MergePatchType

	// waitGone is how often to check whether a workload is gone. Changes of its Pods are watched.
	waitGone = 2 * time.Second
	// lostPod is how long the removal of a YurtCoordinator waits for a Pod after the Pod's deletionTimestamp. A Pod that still
	// exists then is on a dead node, which may never come back.
	lostPod = time.Minute
	// soonest is the least time between two looks at a pool when only time has passed.
	soonest = time.Second
)

// Reconciler makes what YurtCoordinators ask for. Make one with New, and hand it to a manager with AddTo.
type Reconciler struct {
	cfg     Config
	metrics *metrics

	mu sync.Mutex
	// settled has the last result without errors of each YurtCoordinator. Nothing is checked again until the facts change or
	// outcome.again comes.
	settled map[string]settled
	reports map[string]report
	vigils  map[watched]*vigil
	accused map[string]time.Time // by YurtCoordinator; see accuse
	fleet   error                // why what all coordinators share could not be kept; nil means it could
	held    map[string]string    // why a YurtCoordinator stays that no settings ask for, by its name

	applied [edge.MaxSlots]appliedApp // by slot; only keepApp uses it

	// turned makes the controller look at all YurtCoordinators: fleet has become an error or nil, or held has changed.
	turned chan event.GenericEvent
	// brake is used by reconcileCreate alone.
	brake appset.Brake
}

type settled struct {
	facts [sha256.Size]byte
	outcome
	given given
}

// given remembers the rights that a pool was granted, as a digest. It also says when to grant them again in any case, because
// somebody may have changed them.
type given struct {
	digest string
	again  time.Time
}

// New returns a Reconciler that has seen nothing yet.
func New(c Config) *Reconciler {
	c = c.completed()
	return &Reconciler{
		cfg: c, metrics: newMetrics(c.Clock), settled: make(map[string]settled),
		reports: make(map[string]report), vigils: make(map[watched]*vigil), accused: make(map[string]time.Time),
		turned: make(chan event.GenericEvent, 1), brake: appset.Brake{What: "YurtCoordinators"},
	}
}

// Metrics returns the Reconciler's metrics. The caller registers them.
func (r *Reconciler) Metrics() prometheus.Collector { return r.metrics }

// reconcileCoordinator reconciles one YurtCoordinator and its whole pool.
func (r *Reconciler) reconcileCoordinator(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := &v1alpha1.YurtCoordinator{}
	if err := r.cfg.Client.Get(ctx, req.NamespacedName, c); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read YurtCoordinator %s: %w", req.Name, err)
		}
		r.forget(req.Name)
		r.endVigils(req.Name)
		r.acquit(req.Name)
		r.metrics.gone(req.Name)
		return reconcile.Result{}, nil
	}
	c = c.DeepCopy()
	pool := edge.PoolName(c.Spec.NodePool)
	says, err := r.poolSettings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	v, err := r.census(ctx, pool, says)
	if err != nil {
		return reconcile.Result{}, err
	}
	verdict := Judge(v.census).For(c)
	holds := verdict.Reason != ReasonSecondCoordinator
	if v.crew, err = r.crew(ctx, pool); err != nil {
		return reconcile.Result{}, err
	}
	if v.hosts, err = r.hosts(ctx, v.crew, v.nodes); err != nil {
		return reconcile.Result{}, err
	}
	if holds {
		r.accuse(ctx, owner{c.Name, c.UID}, pool, v.crew.foreign)
	}
	switch {
	case !c.DeletionTimestamp.IsZero():
		return r.release(ctx, c, holds)
	case !verdict.Run:
		return r.refuse(ctx, c, v, verdict)
	}
	v.slots = max(v.slotsFor(c), v.crew.slots()) // a standby that is to go is kept up to date until it does
	return r.run(ctx, c, v, verdict)
}

// refuse says why there is no coordinator, and removes what existed of one.
func (r *Reconciler) refuse(ctx context.Context, c *v1alpha1.YurtCoordinator, v view, verdict Verdict) (reconcile.Result, error) {
	// Without a finalizer nothing was ever made.
	if verdict.Reason != ReasonSecondCoordinator && controllerutil.ContainsFinalizer(c, Finalizer) &&
		!v.census.Deployed && len(v.crew.made) == 0 {
		if err := r.clear(ctx, c); err != nil {
			return reconcile.Result{}, err
		}
	}
	pending := finding{Reason: ReasonPending, Message: "There is no coordinator: see the condition Pending."}
	err := r.say(ctx, c, wantedStatus{
		pending: finding{Reason: verdict.Reason, Message: verdict.Message}, certs: pending, ready: pending,
		stalled: finding{OK: true, Reason: verdict.Reason, Message: verdict.Message}, from: v.settings.from,
		held: heldIn(v.nodes),
	})
	return reconcile.Result{RequeueAfter: wait.Jitter(r.cfg.Resync, 0.1)}, err
}

// run makes the objects of a pool that must have a coordinator, and reports the progress.
func (r *Reconciler) run(ctx context.Context, c *v1alpha1.YurtCoordinator, v view, verdict Verdict) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(c, Finalizer) {
		if err := objects.Finalize(ctx, r.cfg.Client, c, controllerutil.AddFinalizer, Finalizer, FieldOwner); err != nil {
			return reconcile.Result{}, err
		}
	}
	said, err := r.reported(ctx, edge.PoolName(c.Spec.NodePool), v.members())
	if err != nil {
		return reconcile.Result{}, err
	}
	status := r.runs(c, v, verdict, said)
	if status.stalled.Reason == "" {
		status.stalled = r.doubts(c.Name)
	}
	f, done, err := r.equip(ctx, c, v)
	if err == nil {
		err = r.prefer(ctx, v)
	}
	if err != nil {
		return reconcile.Result{}, r.troubled(ctx, c, status, err)
	}
	left, err := r.dropSlots(ctx, c, v, status.coordinators)
	if err != nil {
		return reconcile.Result{}, r.troubled(ctx, c, status, err)
	}
	status.certs = done.finding
	status.coordinators = numbered(left, done.generations)
	if err := r.say(ctx, c, status); err != nil {
		return reconcile.Result{}, err
	}
	look, err := r.watchOver(ctx, f.Owner, v)
	if err != nil {
		return reconcile.Result{}, err
	}
	again := done.again
	if said.until.Before(again) {
		again = said.until
	}
	after := max(soonest, again.Sub(r.cfg.Clock.Now()))
	if look > 0 {
		after = min(after, look)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// equip makes what a coordinator needs, and returns what it went by.
func (r *Reconciler) equip(ctx context.Context, c *v1alpha1.YurtCoordinator, v view) (facts, outcome, error) {
	f, err := r.facts(ctx, c, v)
	if err != nil {
		return facts{}, outcome{}, err
	}
	done, err := r.settle(ctx, f)
	return f, done, err
}

// runs returns the status of a coordinator that must run, as far as its Pods, its nodes and its leader's report say.
func (r *Reconciler) runs(c *v1alpha1.YurtCoordinator, v view, verdict Verdict, said told) wantedStatus {
	var slots []inSlotStatus
	asked := askedOf(c.Spec.Version, v.taints, v.settings.CoordinatorSettings)
	for _, slot := range edge.Slots()[:v.slots] {
		pod := v.crew.current[slot]
		slots = append(slots, inSlotStatus{
			pod, readiness(pod, slot, v.left(slot)), progress(slot, pod, asked.digestIn(r.cfg, slot), v.settings.bad),
		})
	}
	best := serving(slots)
	status := wantedStatus{
		pending:     finding{OK: true, Reason: verdict.Reason, Message: verdict.Message},
		ready:       slots[best].ready,
		reconciling: underWay(slots),
		delegated:   delegated(v.nodes), outside: said.outside, kubelets: said.kubelets, nodes: len(v.nodes),
		fillings: said.fillings, from: v.settings.from, held: heldIn(v.nodes),
	}
	status.standbys, status.missing = standbys(slots[:min(len(slots), int(v.slotsFor(c)))], v.replicas(c))
	if v.settings.bad != nil {
		status.stalled = finding{OK: true, Reason: ReasonBadSettings, Message: verdict.Message}
	}
	if why := r.fleetTrouble(); why != nil && !status.ready.OK {
		status.ready = finding{Reason: ReasonReconcileError, Message: fmt.Sprintf(
			"coordinator-controller can't keep what all coordinators share: %.512s", why.Error())}
	}
	if pod := slots[best].pod; pod != nil {
		status.node = pod.Spec.NodeName
	}
	status.coordinators = inSlots(c.Status.Coordinators, slots, v.crew)
	return status
}

// troubled says in the YurtCoordinator's status why its objects could not be kept, and returns the error. It does not report
// conflicts, because the next try resolves them. A coordinator that serves stays Ready.
func (r *Reconciler) troubled(ctx context.Context, c *v1alpha1.YurtCoordinator, status wantedStatus, why error) error {
	if apierrors.IsConflict(why) || ctx.Err() != nil {
		return why
	}
	status.certs = finding{Unknown: true, Reason: ReasonReconcileError, Message: fmt.Sprintf(
		"coordinator-controller tries again, and has failed: %.512s", why.Error())}
	if err := r.say(ctx, c, status); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// facts collects ensure's inputs.
func (r *Reconciler) facts(ctx context.Context, c *v1alpha1.YurtCoordinator, v view) (f facts, err error) {
	f = facts{
		Owner: owner{c.Name, c.UID}, Pool: edge.PoolName(c.Spec.NodePool), At: make([]*place, v.slots),
		Nodes: v.members(), Addresses: addressesOf(v.nodes), Doors: doorsOf(v.nodes),
	}
	for slot := range f.At {
		f.At[slot] = placeOf(v.crew.current[slot], v.hosts[slot])
	}
	f.Denied = slices.Sorted(slices.Values(c.Spec.DeniedUsers))
	if f.ServiceIPs, err = r.serviceIPs(ctx); err != nil {
		return facts{}, err
	}
	if f.ClientCA, err = r.clientCA(ctx); err != nil {
		return facts{}, err
	}
	if r.cfg.KubeletAuthority != nil {
		if f.KubeletCA, err = r.cfg.KubeletAuthority(); err != nil {
			return facts{}, fmt.Errorf("authority of kubelets: %w", err)
		}
	}
	f.Rekey = c.Spec.Rekey
	return f, nil
}

// settle makes a pool's objects as the facts call for, unless it did so recently for the same facts. Thousands of links come and
// go, and to read the Secrets each time would cost too much.
func (r *Reconciler) settle(ctx context.Context, f facts) (outcome, error) {
	sum, now := f.sum(), r.cfg.Clock.Now()
	r.mu.Lock()
	had, ok := r.settled[f.Owner.Name]
	r.mu.Unlock()
	if ok && had.facts == sum && now.Before(had.again) {
		return had.outcome, nil
	}
	done, given, err := r.ensure(ctx, f, had.given)
	if err != nil {
		r.forget(f.Owner.Name)
		return outcome{}, err
	}
	for _, resync := range []time.Time{r.resync(now), given.again} {
		if resync.Before(done.again) {
			done.again = resync
		}
	}
	r.mu.Lock()
	r.settled[f.Owner.Name] = settled{sum, done, given}
	r.mu.Unlock()
	return done, nil
}

// resync returns when to check everything again.
func (r *Reconciler) resync(now time.Time) time.Time { return now.Add(wait.Jitter(r.cfg.Resync, 0.5)) }

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.settled, name)
}

// clear deletes all objects of a pool, and what is remembered about it.
func (r *Reconciler) clear(ctx context.Context, c *v1alpha1.YurtCoordinator) error {
	r.forget(c.Name)
	r.metrics.cleared(c.Name)
	for _, obj := range belongings(edge.PoolName(c.Spec.NodePool)) {
		if err := r.remove(ctx, obj); err != nil {
			return err
		}
	}
	return r.unmark(ctx, edge.PoolName(c.Spec.NodePool))
}
