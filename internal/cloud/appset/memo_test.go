package appset

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
)

func TestWhatIsRenderedIsUsedAgain(t *testing.T) {
	c, set := New(Config{}), deployments("web", nil)
	pools := []*v1beta2.NodePool{nodePool("a", "x=y")}
	first := c.render(set, pools)
	if again := c.render(set, pools); first[0].Object == nil || again[0].Object != nil || again[0].Hash != first[0].Hash {
		t.Errorf("%+v, then %+v", first, again)
	}
	for name, change := range map[string]func(){
		"another generation": func() { set.Generation++ },
		"another set":        func() { set.UID = "other" },
		"another label":      func() { pools[0] = nodePool("a", "x=z") },
		"another pool":       func() { pools[0] = nodePool("b", "x=z") },
		"one more":           func() { pools = append(pools, nodePool("c")) },
	} {
		if change(); c.render(set, pools)[0].Object == nil {
			t.Errorf("%s is not rendered", name)
		}
	}
	c.remember(client.ObjectKeyFromObject(set), "gone", known{})
	c.keepOnly(client.ObjectKeyFromObject(set), first)
	if m := c.known[client.ObjectKeyFromObject(set)]; len(m.pools) != 0 {
		t.Errorf("it knows %v", m.pools)
	}
	if c.forget(client.ObjectKeyFromObject(set)); len(c.known) != 0 {
		t.Error("it forgets nothing")
	}
}

// BenchmarkRenderAgain is what a thousand pools cost where nothing has changed.
func BenchmarkRenderAgain(b *testing.B) {
	c, set := New(Config{}), deployments("web", nil)
	var pools []*v1beta2.NodePool
	for i := range 1000 {
		pools = append(pools, nodePool(fmt.Sprintf("pool-%04d", i), "site=north"))
	}
	c.render(set, pools)
	b.ReportAllocs()
	for b.Loop() {
		if c.render(set, pools)[0].Object != nil {
			b.Fatal("it is rendered again")
		}
	}
}
