package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// AnnotationPatch holds what Patches writes.
const AnnotationPatch = "load.yurtlab/patch"

// PatchSpec says what to patch.
type PatchSpec struct {
	// Paths are the objects: "/api/v1/nodes/p1-n1", or with a subresource "/api/v1/nodes/p1-n1/status".
	Paths []string
	// MaxBytes is the most that one patch writes into AnnotationPatch; 0 means 2048. An object may have 256 KiB in all
	// its annotations.
	MaxBytes int
	// PerSecond is the rate of patches; 0 means as many as Writers can.
	PerSecond float64
	// Writers is how many requests are under way at a time; 0 means 8.
	Writers int
	// Seed decides the random choices: the same seed makes the same choices again.
	Seed uint64
}

// Patches patches randomly chosen objects with random contents for the duration d. client is any typed client's RESTClient().
// It counts Updates and Retries.
func Patches(ctx context.Context, client rest.Interface, spec PatchSpec, d time.Duration) (Counts, error) {
	if len(spec.Paths) == 0 {
		return Counts{}, fmt.Errorf("no paths: %w", ErrNothingToChange)
	}
	if spec.MaxBytes <= 0 {
		spec.MaxBytes = 2048
	}
	if spec.Writers <= 0 {
		spec.Writers = defaultWriters
	}
	limit := rate.Inf
	if spec.PerSecond > 0 {
		limit = rate.Limit(spec.PerSecond)
	}
	pace := rate.NewLimiter(limit, 1)
	var over atomic.Bool
	defer time.AfterFunc(d, func() { over.Store(true) }).Stop()
	var updates, retries atomic.Int64
	writing, ctx := errgroup.WithContext(ctx)
	for w := range spec.Writers {
		writing.Go(func() error {
			chance := rand.New(rand.NewPCG(spec.Seed, uint64(w)))
			for {
				if err := await(ctx, pace); err != nil {
					return err
				}
				if over.Load() {
					return nil
				}
				path := spec.Paths[chance.IntN(len(spec.Paths))]
				patch := randomPatch(chance, spec.MaxBytes)
				n, err := persist(ctx, func(ctx context.Context) error {
					return client.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(ctx).Error()
				})
				retries.Add(int64(n))
				if err != nil {
					return fmt.Errorf("patch of %s: %w", path, err)
				}
				updates.Add(1)
			}
		})
	}
	err := writing.Wait()
	return Counts{Updates: int(updates.Load()), Retries: int(retries.Load())}, err
}

// randomPatch returns a patch of random content and size, which no server can share or compress.
func randomPatch(chance *rand.Rand, maxBytes int) []byte {
	var content strings.Builder
	for content.Len() < 1+chance.IntN(maxBytes) {
		fmt.Fprintf(&content, "%016x", chance.Uint64())
	}
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, AnnotationPatch,
		content.String()[:min(content.Len(), maxBytes)])
}
