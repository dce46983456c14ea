package appset

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
)

// known is what was applied last to a pool's workload.
type known struct {
	uid        types.UID
	hash       string
	generation int64 // that the workload had after it
	// refused is why it was not; since then neither what is wanted nor the workload has changed, and it is until.
	refused string
	until   time.Time
}

// memory is what is known of one YurtAppSet.
type memory struct {
	pools map[string]known // by pool

	// wanted was rendered from what key is a hash of, and has no Objects: to keep them would be to keep each workload twice.
	key    [sha256.Size]byte
	wanted []Wanted
}

// render is Render, which takes a while for a thousand pools, and has each event of a workload wait for it. So the last
// result is kept; the Objects of one that is used again are nil.
func (c *Controller) render(set *v1beta1.YurtAppSet, pools []*v1beta2.NodePool) []Wanted {
	name, key := client.ObjectKeyFromObject(set), keyOf(set, pools)
	if w := c.rendered(name, key); w != nil {
		return w
	}
	wanted := Render(set, pools)
	kept := slices.Clone(wanted)
	for i := range kept {
		kept[i].Object = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memoryLocked(name)
	m.key, m.wanted = key, kept
	return wanted
}

// rendered returns a copy of what was rendered, nil if it was from something else.
func (c *Controller) rendered(name types.NamespacedName, key [sha256.Size]byte) []Wanted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.known[name]; m != nil && m.key == key {
		return slices.Clone(m.wanted)
	}
	return nil
}

// keyOf is a hash of all that Render depends on.
func keyOf(set *v1beta1.YurtAppSet, pools []*v1beta2.NodePool) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d\n", set.UID, set.Generation)
	for _, p := range pools {
		fmt.Fprintf(h, "%q", p.Name)
		for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
			fmt.Fprintf(h, " %q %q", k, p.Labels[k])
		}
		fmt.Fprintln(h)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (c *Controller) memoryLocked(set types.NamespacedName) *memory {
	if c.known[set] == nil {
		c.known[set] = &memory{pools: make(map[string]known)}
	}
	return c.known[set]
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

// keepOnly forgets the pools that are not wanted.
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
