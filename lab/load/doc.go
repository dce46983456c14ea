// Package load puts load on an API server as its ordinary clients do, and plays a node's clients meanwhile: Services and
// EndpointSlices shaped as kube-controller-manager makes them, changes like a rolling update's, endless patches, and informers
// that say when they have everything.
//
// It does not know labs or hubs. Its caller gives it a rest.Config or a client, which decides which server it asks and by which
// way.
//
// Invariants:
//
//   - An object's number decides its name: to make it twice creates nothing new.
//   - AnnotationSequence only grows from one revision of an object to the next. It says nothing about two objects.
//   - Nothing here runs after the called function has returned.
//
// The alternative was Deployments with hollow Pods. Then the measurement would depend on the speed of a scheduler and kubelets,
// and 50,000 endpoints would cost 50,000 Pods.
package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client returns a client that speaks protobuf, as kube-proxy, CoreDNS and kube-controller-manager do.
func Client(cfg *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(protobuf(cfg))
}

func protobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg
}

const (
	// defaultWriters keeps a kube-apiserver on two cores busy without a backlog.
	defaultWriters = 8
	// patience is how long a server may be away: kube-apiserver restarts in 5 s.
	patience = time.Minute
	// pause is between two tries.
	pause = 100 * time.Millisecond
)

// persist calls do until it succeeds, is refused for good, or has failed for the time of patience. It returns how often it
// tried again.
func persist(ctx context.Context, do func(context.Context) error) (retries int, err error) {
	began := time.Now()
	for {
		try, cancel := context.WithTimeout(ctx, patience/4)
		err = do(try)
		cancel()
		switch {
		case err == nil:
			return retries, nil
		case ctx.Err() != nil:
			return retries, errors.Join(err, context.Cause(ctx))
		case final(err):
			return retries, err
		case time.Since(began) > patience:
			return retries, fmt.Errorf("for %s: %w", patience, err)
		}
		retries++
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// final reports whether a retry is useless.
func final(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
