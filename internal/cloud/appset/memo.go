package appset

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
)

// known is what was last applied to a pool's workload.
type known struct {
	uid        types.UID
	hash       string
	generation int64 // of the workload after that
	// refused is the reason if the API server refused it; it holds until what is wanted or the workload changes.
	refused string
	until   time.Time
}

// memory is what is remembered about one YurtAppSet.
type memory struct {
	pools map[string]known // by pool

	// noPulls says that no Pod of this YurtAppSet pulls images.
	noPulls bool

	// byNodes says that changes of Nodes matter (waitForNodes).
	byNodes bool

	// wanted is what was rendered last, by pool. It has no Objects: they would store each workload twice.
	wanted map[string]rendered

	// brake is used by the reconcile of this YurtAppSet alone.
	brake Brake
}

// rendered is what is wanted in one pool, with a hash of its inputs.
type rendered struct {
	key    [sha256.Size]byte
	wanted Wanted
}

// render does what Render does, with a cache, because Render takes a while for a thousand pools and each event waits for it. The
// cache has each pool's last result. The Wanted of an unchanged pool has a nil Object.
//
// If a tweak's selector can't be used, or the inputs can't be hashed, the cache is not used, and Render reports for each pool
// what is wrong.
func (c *Controller) render(set *v1beta1.YurtAppSet, pools []*v1beta2.NodePool, had map[string]Had) []Wanted {
	r := newRenderer(set)
	keyOf, err := keys(set)
	if r.bad != nil || err != nil {
		return Render(set, pools, had)
	}
	name := client.ObjectKeyFromObject(set)
	before, kept, all := c.rendered(name), make(map[string]rendered, len(pools)), make([]Wanted, len(pools))
	for i, pool := range pools {
		key := keyOf(pool, r.tweaks(pool), had[pool.Name])
		last, found := before[pool.Name]
		if !found || last.key != key {
			all[i] = r.render(pool, had[pool.Name])
			last = rendered{key, all[i]}
			last.wanted.Object = nil
		} else {
			all[i] = last.wanted
		}
		kept[pool.Name] = last
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memoryLocked(name).wanted = kept
	return all
}

// rendered returns a map that is replaced and never changed.
func (c *Controller) rendered(name types.NamespacedName) map[string]rendered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.known[name]; m != nil {
		return m.wanted
	}
	return nil
}

// keys returns a function that hashes all inputs of a pool's workload. These are the YurtAppSet's identity and template, the
// pool's tweaks with their indices, the pool's name, and what is kept of the existing workload.
func keys(set *v1beta1.YurtAppSet) (func(pool *v1beta2.NodePool, tweaks []int, had Had) [sha256.Size]byte, error) {
	spec := set.Spec.Workload
	common, err := sum(set.UID, set.Namespace, set.Name, spec.WorkloadTemplate)
	if err != nil {
		return nil, err
	}
	each := make([][sha256.Size]byte, len(spec.WorkloadTweaks))
	for i := range each {
		if each[i], err = sum(spec.WorkloadTweaks[i].Tweaks); err != nil {
			return nil, err
		}
	}
	return func(pool *v1beta2.NodePool, tweaks []int, had Had) [sha256.Size]byte {
		h := sha256.New()
		h.Write(common[:])
		for _, i := range tweaks {
			fmt.Fprintf(h, "%d %x ", i, each[i])
		}
		fmt.Fprintf(h, "%q %q %q %q %q", pool.Name, had.Name, had.Revision, had.PodRevision, had.Nodes)
		return [sha256.Size]byte(h.Sum(nil))
	}, nil
}

// sum hashes values.
func sum(values ...any) ([sha256.Size]byte, error) {
	encoded, err := json.Marshal(values)
	return sha256.Sum256(encoded), err
}

func (c *Controller) memoryLocked(set types.NamespacedName) *memory {
	if c.known[set] == nil {
		c.known[set] = &memory{pools: make(map[string]known), brake: Brake{What: "workloads"}}
	}
	return c.known[set]
}

func (c *Controller) brake(set types.NamespacedName) *Brake {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &c.memoryLocked(set).brake
}

func (c *Controller) remembered(set types.NamespacedName, pool string) known {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[set] == nil {
		return known{}
	}
	return c.known[set].pools[pool]
}

func (c *Controller) remember(set types.NamespacedName, pool string, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memoryLocked(set).pools[pool] = k
}

// keepOnly forgets all pools that are not wanted.
func (c *Controller) keepOnly(set types.NamespacedName, wanted []Wanted) {
	pools := make(map[string]bool, len(wanted))
	for i := range wanted {
		pools[wanted[i].Pool] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.memoryLocked(set).pools, func(pool string, _ known) bool { return !pools[pool] })
}

func (c *Controller) forget(set types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, set)
}
