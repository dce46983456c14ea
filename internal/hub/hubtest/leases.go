package hubtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

var resource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// LeaseCall is one request, as faults see it.
type LeaseCall struct {
	// Client is the name that the caller's client was made with; empty for the server's own.
	Client string
	// Verb is get, watch, create or update.
	Verb, Namespace, Name string
	// Lease is what a create or an update brings; nil otherwise. It must not be changed.
	Lease *coordinationv1.Lease
}

// String is "verb name", or the verb alone for a watch.
func (c LeaseCall) String() string {
	if c.Name == "" {
		return c.Verb
	}
	return c.Verb + " " + c.Name
}

// LeaseServer holds Leases. It implements coordinationv1client.LeasesGetter. Make one with NewLeaseServer.
type LeaseServer struct {
	mu       sync.Mutex
	starts   int // of the server's process
	revision uint64
	uids     int
	leases   map[types.NamespacedName]*coordinationv1.Lease
	oldest   uint64            // what has changed before this revision is not known any more
	deleted  map[string]uint64 // the revision of the last deletion in a namespace
	watches  map[*stream]struct{}
	calls    []LeaseCall
	before   func(context.Context, LeaseCall) error
	after    func(context.Context, LeaseCall) error
	witness  func(LeaseCall)
	held     bool
	cut      map[string]chan struct{} // closed when the client is connected again
}

// NewLeaseServer returns an empty server at revision start.
func NewLeaseServer(start uint64) *LeaseServer {
	return &LeaseServer{
		revision: start, oldest: start,
		leases: map[types.NamespacedName]*coordinationv1.Lease{}, watches: map[*stream]struct{}{},
		cut: map[string]chan struct{}{}, deleted: map[string]uint64{},
	}
}

// Before sets a fault that runs before each request. It may block until the request's context ends, or fail the request.
func (s *LeaseServer) Before(fault func(context.Context, LeaseCall) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fault
}

// After sets a fault that runs after each request took effect: its error stands for an answer that got lost.
func (s *LeaseServer) After(fault func(context.Context, LeaseCall) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = fault
}

// Witness sets a function that the server calls with each request as soon as the request has taken effect, and before anybody can
// see the effect. The function runs under the server's lock and must not call the server.
func (s *LeaseServer) Witness(witness func(LeaseCall)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.witness = witness
}

// Hang is a fault: the request gets no answer.
func Hang(ctx context.Context, _ LeaseCall) error {
	<-ctx.Done()
	return ctx.Err()
}

// Calls returns all requests since the last time it was asked.
func (s *LeaseServer) Calls() []LeaseCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Hold stops the delivery of what State tells, which piles up on the way, until Flow.
func (s *LeaseServer) Hold() { s.hold(true) }

// Flow delivers what Hold held up.
func (s *LeaseServer) Flow() { s.hold(false) }

func (s *LeaseServer) hold(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = on
	for w := range s.watches {
		w.signal()
	}
}

// Cut makes a client's requests hang, and what State tells it piles up on the way, until Heal.
func (s *LeaseServer) Cut(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut[client] == nil {
		s.cut[client] = make(chan struct{})
	}
}

// Heal ends a Cut: requests that have not been given up yet go on, and what was told arrives.
func (s *LeaseServer) Heal(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if healed := s.cut[client]; healed != nil {
		close(healed)
		delete(s.cut, client)
	}
	for w := range s.watches {
		w.signal()
	}
}

// Break ends all streams, as a lost connection does.
func (s *LeaseServer) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.endLocked()
	}
}

// Compact forgets what has changed: no stream can be resumed anywhere before now.
func (s *LeaseServer) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.revision
}

// Restart empties the server, as the death of its process empties a coordinator in memory. Revisions restart at start.
func (s *LeaseServer) Restart(start uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.revision, s.oldest = s.starts+1, start, start
	clear(s.leases)
	clear(s.deleted)
	for w := range s.watches { // under the same lock: nobody resumes at what it was
		w.endLocked()
	}
}

// SetBack makes revisions count again from start, as after a restore from a backup. The Leases keep their content.
func (s *LeaseServer) SetBack(start uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = start
	for key, lease := range s.leases {
		s.revision++
		older := lease.DeepCopy()
		older.ResourceVersion = strconv.FormatUint(s.revision, 10)
		s.leases[key] = older
	}
	s.oldest = s.revision
	for w := range s.watches {
		w.endLocked()
	}
}

// Peek returns a Lease as stored, without a request; nil if there is none.
func (s *LeaseServer) Peek(namespace, name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// Edit changes a stored Lease, or makes it, without a request and whatever its revision.
func (s *LeaseServer) Edit(namespace, name string, edit func(*coordinationv1.Lease)) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leases[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	edit(lease)
	return s.storeLocked(lease)
}

// Remove deletes a stored Lease without a request.
func (s *LeaseServer) Remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(types.NamespacedName{Namespace: namespace, Name: name})
}

func (s *LeaseServer) storeLocked(lease *coordinationv1.Lease) *coordinationv1.Lease {
	key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
	old := s.leases[key]
	stored := lease.DeepCopy()
	s.revision++
	stored.ResourceVersion = strconv.FormatUint(s.revision, 10)
	if old == nil {
		s.uids++
		stored.UID = types.UID(fmt.Sprintf("uid-%d-%d", s.revision, s.uids))
		stored.CreationTimestamp = metav1.Now()
	} else {
		stored.UID, stored.CreationTimestamp = old.UID, old.CreationTimestamp
	}
	s.leases[key] = stored
	s.tellLocked()
	return stored.DeepCopy()
}

func (s *LeaseServer) removeLocked(key types.NamespacedName) {
	if s.leases[key] != nil {
		s.revision++
		delete(s.leases, key)
		s.deleted[key.Namespace] = s.revision
		s.tellLocked()
	}
}

func (s *LeaseServer) tellLocked() {
	for w := range s.watches {
		w.signal()
	}
}

// Leases implements coordinationv1client.LeasesGetter.
func (s *LeaseServer) Leases(namespace string) coordinationv1client.LeaseInterface {
	return client{server: s, namespace: namespace}
}

// Client returns a client with a name, by which faults tell its requests and Cut cuts it off.
func (s *LeaseServer) Client(name string) coordinationv1client.LeasesGetter { return named{s, name} }

type named struct {
	server *LeaseServer
	name   string
}

func (n named) Leases(namespace string) coordinationv1client.LeaseInterface {
	return client{server: n.server, name: n.name, namespace: namespace}
}

func (s *LeaseServer) do(ctx context.Context, call LeaseCall, act func() error) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	before, after, cut := s.before, s.after, s.cut[call.Client]
	s.mu.Unlock()
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	err := act()
	if err == nil && s.witness != nil {
		s.witness(call)
	}
	s.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, call)
	}
	return err
}

// client is one namespace's view. Verbs that the hub never uses go to the nil interface, and panic.
type client struct {
	coordinationv1client.LeaseInterface
	server    *LeaseServer
	name      string
	namespace string
}

func (c client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	var got *coordinationv1.Lease
	s, key := c.server, types.NamespacedName{Namespace: c.namespace, Name: name}
	err := s.do(ctx, LeaseCall{c.name, "get", c.namespace, name, nil}, func() error {
		if got = s.leases[key].DeepCopy(); got == nil {
			return apierrors.NewNotFound(resource, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (c client) Create(
	ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	var got *coordinationv1.Lease
	s, key := c.server, types.NamespacedName{Namespace: c.namespace, Name: lease.Name}
	err := s.do(ctx, LeaseCall{c.name, "create", c.namespace, lease.Name, lease.DeepCopy()}, func() error {
		if lease.ResourceVersion != "" {
			return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
		}
		if s.leases[key] != nil {
			return apierrors.NewAlreadyExists(resource, lease.Name)
		}
		made := lease.DeepCopy()
		made.Namespace = c.namespace
		got = s.storeLocked(made)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (c client) Update(
	ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	var got *coordinationv1.Lease
	s, key := c.server, types.NamespacedName{Namespace: c.namespace, Name: lease.Name}
	err := s.do(ctx, LeaseCall{c.name, "update", c.namespace, lease.Name, lease.DeepCopy()}, func() error {
		old := s.leases[key]
		var uid types.UID
		if old != nil {
			uid = old.UID
		}
		// kube-apiserver takes a uid as a precondition, also where there is nothing to compare it with.
		if lease.UID != "" && lease.UID != uid {
			return apierrors.NewConflict(resource, lease.Name,
				fmt.Errorf("uid precondition: %q is not %q", lease.UID, uid))
		}
		if old != nil {
			if lease.ResourceVersion == "" {
				missing := field.Invalid(field.NewPath("metadata", "resourceVersion"), 0,
					"must be specified for an update")
				kind := coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind()
				return apierrors.NewInvalid(kind, lease.Name, field.ErrorList{missing})
			}
			if lease.ResourceVersion != old.ResourceVersion {
				return apierrors.NewConflict(resource, lease.Name, fmt.Errorf("the object has been modified"))
			}
		}
		made := lease.DeepCopy()
		made.Namespace = c.namespace
		if len(options.DryRun) > 0 {
			got = made
			return nil
		}
		got = s.storeLocked(made)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// inOrderLocked returns all Leases in the order in which they were written.
func (s *LeaseServer) inOrderLocked() []*coordinationv1.Lease {
	return slices.SortedFunc(maps.Values(s.leases), func(a, b *coordinationv1.Lease) int {
		return cmp.Compare(revisionOf(a), revisionOf(b))
	})
}

func revisionOf(lease *coordinationv1.Lease) uint64 {
	n, _ := strconv.ParseUint(lease.ResourceVersion, 10, 64) // it is the server's own
	return n
}
