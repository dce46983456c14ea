package share

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

// The ServiceAccounts of the node's Pods are in no replica: a node may get them (since Kubernetes 1.33), but not list or watch
// them. So Accounts reads each one when the first Pod uses it, when the cloud is back after a cut, and from time to time.

const (
	// readAccountEvery is the longest pause before an account is read again, because ServiceAccounts hardly ever change.
	readAccountEvery = time.Hour
	// readAccountsWithin spreads the reads after the cloud is back, so that not all hubs read at once.
	readAccountsWithin = time.Minute
	// readAccountTimeout bounds one read. readAccountPause is the pause between two reads; a newly wanted account ends it early.
	// readAccountRetry is the longest pause after a failure other than a refusal.
	readAccountTimeout = 10 * time.Second
	readAccountPause   = 100 * time.Millisecond
	readAccountRetry   = 30 * time.Second
	// readAccountFirst is the pause after the cloud has refused the first read of an account; further pauses grow to
	// readAccountEvery. The API server may refuse only because it has not yet heard of the Pod that uses the account.
	readAccountFirst = 2 * time.Second
	// maxAccounts bounds the accounts: more than a node has Pods by default.
	maxAccounts = 250
)

// account is a ServiceAccount as last read.
type account struct {
	object stream.Object // without Raw: not read yet, or deleted
	in     edge.History  // that its revision counts in
	gone   bool          // the cloud says that there is none
	due    time.Time     // to be read again
	denied run.Backoff   // of refused reads, before the first success
}

// AccountsConfig configures Accounts. All fields are required.
type AccountsConfig struct {
	// Cloud is a client of the cloud's ServiceAccounts, as this node. CloudLink is the state of the link to it.
	Cloud     corev1client.ServiceAccountsGetter
	CloudLink *live.Value[link.State]
	// History returns the cloud's history, as far as is known.
	History func() edge.History
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Accounts reads the ServiceAccounts of this node's Pods from the cloud. One Accounts serves the pushes to all of the pool's
// coordinators. Make one with NewAccounts.
type Accounts struct {
	config AccountsConfig
	wake   bell // another is wanted

	mu     sync.Mutex
	all    map[stream.Key]*account
	wanted map[bell]map[stream.Key]struct{} // by the bell of each owner, which is rung after each read
	in     edge.History                     // at the last call of want
}

// NewAccounts returns Accounts. It does no I/O.
func NewAccounts(c AccountsConfig) *Accounts {
	return &Accounts{
		config: c, wake: newBell(), all: map[stream.Key]*account{}, wanted: map[bell]map[stream.Key]struct{}{},
	}
}

// want sets which accounts a Node needs; the parameter by identifies the Node, and is rung after each read of an account. want
// drops the accounts that no Node needs. If the cloud's history has changed, it schedules all accounts to be read again.
func (a *Accounts) want(by bell, keys map[stream.Key]struct{}, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted[by] = keys
	for k := range a.all {
		if !a.isWantedLocked(k) {
			delete(a.all, k)
		}
	}
	if in := a.config.History(); in != a.in {
		a.in = in
		a.hurryLocked(now)
	}
	for k := range keys {
		if a.all[k] != nil || len(a.all) >= maxAccounts {
			continue
		}
		a.all[k] = &account{due: now, denied: run.Backoff{Min: readAccountFirst, Max: readAccountEvery}}
		a.wake.ring()
	}
}

func (a *Accounts) isWantedLocked(k stream.Key) bool {
	for _, keys := range a.wanted {
		if _, wanted := keys[k]; wanted {
			return true
		}
	}
	return false
}

// addTo adds the known accounts to w.
func (a *Accounts) addTo(w want) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, each := range a.all {
		if each.object.Raw != nil {
			w.add(stream.ID{Resource: serviceAccounts, Key: k}, each.object, each.in)
		}
	}
}

// known implements want.known: it returns forever for an account that the cloud no longer has, otherwise the zero Moment.
func (a *Accounts) known(k stream.Key) edge.Moment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if each := a.all[k]; each != nil && each.gone {
		return forever
	}
	return edge.Moment{}
}

// Run reads the accounts until ctx ends, and returns nil.
func (a *Accounts) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		state, changed := a.config.CloudLink.Watch()
		if state == link.Down {
			select {
			case <-changed:
				a.mu.Lock()
				a.hurryLocked(a.config.Ends.Running())
				a.mu.Unlock()
			case <-ctx.Done():
			}
			continue
		}
		k, wait := a.next(a.config.Ends.Running())
		if wait <= 0 {
			a.read(ctx, k)
			wait = readAccountPause
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-a.wake:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// next returns the account that is due first, and how long until then.
func (a *Accounts) next(now time.Time) (first stream.Key, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = readAccountEvery
	for k, each := range a.all {
		if until := each.due.Sub(now); until < wait {
			first, wait = k, until
		}
	}
	return first, wait
}

// hurryLocked schedules all accounts to be read again soon.
func (a *Accounts) hurryLocked(now time.Time) {
	a.wake.ring()
	for _, each := range a.all {
		if due := now.Add(a.config.Ends.Below(readAccountsWithin)); due.Before(each.due) {
			each.due = due
		}
	}
}

func (a *Accounts) read(ctx context.Context, k stream.Key) {
	timed, cancel := context.WithTimeout(ctx, readAccountTimeout)
	defer cancel()
	in := a.config.History() // it may be a later one that answers: then it is read again
	there, err := a.config.Cloud.ServiceAccounts(k.Namespace).Get(timed, k.Name, metav1.GetOptions{})
	var object stream.Object
	if err == nil {
		object, err = accountObject(there)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	each := a.all[k]
	if each == nil || ctx.Err() != nil {
		return
	}
	for by := range a.wanted {
		defer by.ring()
	}
	now := a.config.Ends.Running()
	each.due = now.Add(readAccountEvery/2 + a.config.Ends.Below(readAccountEvery/2))
	switch {
	case err == nil:
		each.object, each.in, each.gone = object, in, false
	case apierrors.IsNotFound(err):
		each.object, each.gone = stream.Object{}, true
	case apierrors.IsForbidden(err): // a cluster that does not let nodes read them, or does not know yet that the Pod is here
		if each.object.Raw == nil && !each.gone {
			each.due = now.Add(each.denied.Next(a.config.Ends.Float64()))
		}
	default:
		each.due = now.Add(readAccountRetry/2 + a.config.Ends.Below(readAccountRetry/2))
	}
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A ServiceAccount of this node's Pods is not read", "serviceAccount", k.String(),
			"again", a.config.Ends.Until(each.due).Round(time.Second), "err", err)
	}
}

func accountObject(a *corev1.ServiceAccount) (stream.Object, error) {
	raw, err := a.Marshal()
	if err != nil {
		return stream.Object{}, err
	}
	return stream.Scan(stream.Protobuf, raw)
}

// podAccount is the name of a Pod's ServiceAccount, at a moment of the Pod.
type podAccount struct {
	as   edge.Moment
	name string
}

// accountsOf returns the ServiceAccounts of the Pods in w. The map read caches the decoded names; accountsOf updates it.
func accountsOf(w want, read map[stream.Key]podAccount) map[stream.Key]struct{} {
	keys := map[stream.Key]struct{}{}
	for k := range read {
		if _, still := w.objects[stream.ID{Resource: pods, Key: k}]; !still {
			delete(read, k)
		}
	}
	for i, o := range w.objects {
		if i.Resource != pods {
			continue
		}
		// After a restore of the cloud, another Pod may have the name and the revision of an earlier one.
		if as := w.mark(i).Moment; read[i.Key].as != as {
			var pod corev1.Pod
			if err := pod.Unmarshal(o.Raw); err != nil {
				continue
			}
			read[i.Key] = podAccount{as, pod.Spec.ServiceAccountName}
		}
		if name := read[i.Key].name; name != "" {
			keys[stream.Key{Namespace: i.Namespace, Name: name}] = struct{}{}
		}
	}
	return keys
}
