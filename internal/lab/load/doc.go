// Package load makes load on an API server as its ordinary clients do, and stands for a node's clients under it: Services
// and EndpointSlices in the shapes that kube-controller-manager gives them, changes as of a rolling update, patches
// without end, and informers that say when they have all there is.
//
// It knows nothing of labs or hubs: whoever calls it says, by a rest.Config or a client, who is asked and on which way.
//
// Invariants:
//
//   - Objects have the names that their numbers give them: making them twice makes nothing new.
//   - AnnotationSequence of one object only grows from one revision of it to the next; of two objects it says nothing.
//   - Nothing here runs after the function that was called has returned.
//
// Deployments with hollow Pods were the alternative. They make what is measured depend on how fast a scheduler and
// kubelets work, and 50,000 endpoints cost 50,000 Pods.
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
	cfg.WarningHandler = rest.NoWarnings{} // each request for Endpoints is answered with one
	return cfg
}

const (
	// defaultWriters keeps a kube-apiserver on two cores busy, and does not queue up before it.
	defaultWriters = 8
	// patience is how long a server may be away: kube-apiserver is started again in 5 s.
	patience = time.Minute
	// pause is between two tries.
	pause = 100 * time.Millisecond
)

// persist calls do until it succeeds, is refused for good, or has failed for as long as patience lasts. It returns how
// often it had to try again.
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

// final reports whether trying again is of no use.
func final(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
