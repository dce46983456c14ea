package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

var (
	errStopped    = errors.New("the hub is stopping")
	errSuperseded = errors.New("a newer heartbeat takes its place")
	errNowhere    = errors.New("no coordinator can be reached any more")
)

// copier writes the node's copies to one coordinator, one at a time. A newer copy replaces one that waits, and cancels the write
// under way. A cancelled write that still reaches the coordinator after a newer one fails because of its resourceVersion.
type copier struct {
	leases coordinationv1client.LeaseInterface
	served func(bool)
	wake   chan struct{}

	mu      sync.Mutex
	waiting *draft
	recall  context.CancelCauseFunc // calls off the write under way; nil if there is none
	stopped bool

	known *coordinationv1.Lease // as last read or written; only run uses it
}

// draft is one copy to write.
type draft struct {
	lease   *coordinationv1.Lease
	timeout time.Duration
	done    chan struct{}
	err     error  // set before done is closed
	next    *draft // what took its place; set before done is closed
}

func newCopier(to Coordinator) *copier {
	c := &copier{leases: to.Leases.Leases(corev1.NamespaceNodeLease), served: to.Served, wake: make(chan struct{}, 1)}
	if c.served == nil {
		c.served = func(bool) {}
	}
	return c
}

// submit queues a copy. The timeout counts from the start of its write.
func (c *copier) submit(lease *coordinationv1.Lease, timeout time.Duration) *draft {
	d := &draft{lease: lease, timeout: timeout, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		d.finish(errStopped, nil)
		return d
	}
	if c.waiting != nil {
		c.waiting.finish(errSuperseded, d)
	}
	c.waiting = d
	if c.recall != nil {
		c.recall(errSuperseded)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return d
}

func (d *draft) finish(err error, next *draft) {
	d.err, d.next = err, next
	close(d.done)
}

// wait blocks until the copy, or the one that took its place, was written, or ctx ends.
func (d *draft) wait(ctx context.Context) error {
	for {
		select {
		case <-d.done:
			if d.next == nil {
				return d.err
			}
			d = d.next
		case <-ctx.Done():
			return fmt.Errorf("copy to the coordinator: %w", context.Cause(ctx))
		}
	}
}

// drafts are the copies of one heartbeat, one for each coordinator that could be reached.
type drafts []*draft

// wait returns nil once one coordinator has the heartbeat, even if others hang. It fails if all writes have failed, or if ctx
// ends.
func (all drafts) wait(ctx context.Context) error {
	switch len(all) {
	case 0:
		return errNowhere
	case 1:
		return all[0].wait(ctx)
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	outcomes := make(chan error, len(all))
	for _, d := range all {
		go func() { outcomes <- d.wait(ctx) }()
	}
	var failure error
	for range all {
		err := <-outcomes
		if err == nil {
			return nil
		}
		failure = errors.Join(failure, err)
	}
	return failure
}

// run writes what is submitted until ctx ends.
func (c *copier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.stopped = true
			if c.waiting != nil {
				c.waiting.finish(errStopped, nil)
				c.waiting = nil
			}
			return
		case <-c.wake:
			c.one(ctx)
		}
	}
}

func (c *copier) one(ctx context.Context) {
	ctx, recall := context.WithCancelCause(ctx)
	defer recall(nil)
	c.mu.Lock()
	d := c.waiting
	c.waiting, c.recall = nil, recall
	c.mu.Unlock()
	if d == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	err := c.upsert(limited, d.lease)
	if ctx.Err() == nil { // else it was called off
		c.served(err == nil)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.recall = nil
	if err == nil {
		d.finish(nil, nil)
		return
	}
	if c.waiting != nil {
		// Cancelled, or failed by itself: in both cases the newer copy decides what kubelet is told.
		d.finish(errSuperseded, c.waiting)
		return
	}
	klog.FromContext(ctx).V(1).Info("The coordinator did not take the copy of a heartbeat", "err", err)
	d.finish(err, nil)
}

// upsert writes the copy over whatever Lease the coordinator has. After a restart the coordinator has none. After a write whose
// answer was lost, the coordinator has a later Lease than the copier knows.
func (c *copier) upsert(ctx context.Context, lease *coordinationv1.Lease) error {
	const attempts = 4
	var failure error
	missing := false
	for range attempts {
		if c.known == nil && !missing {
			found, err := c.leases.Get(ctx, lease.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				missing = true
			case err != nil:
				return fmt.Errorf("read the coordinator's copy: %w", err)
			default:
				c.known = found
			}
		}
		var written *coordinationv1.Lease
		var err error
		if missing {
			written, err = c.leases.Create(ctx, lease, metav1.CreateOptions{})
		} else {
			update := lease.DeepCopy()
			// The uid keeps a Lease from before the coordinator's restart from being taken for this one.
			update.UID, update.ResourceVersion = c.known.UID, c.known.ResourceVersion
			written, err = c.leases.Update(ctx, update, metav1.UpdateOptions{})
		}
		if err == nil {
			c.known = written
			return nil
		}
		c.known, missing, failure = nil, false, err
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return fmt.Errorf("write the coordinator's copy: %w", failure)
}
