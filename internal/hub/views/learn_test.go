package views

import (
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// TestCopyThatIsFedLate checks that Topology learns at once from a copy that is fed only after an hour: the client that asked for
// it waits at most 5 s.
func TestCopyThatIsFedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := newScript(serviceType, edge.Revision(900))
		services.err = stream.ErrNotReady
		r := start(t, services, newScript(poolType, 950, nodePool(800, "n1", "n2")))
		time.Sleep(time.Hour)
		if r.complete.Get() {
			t.Fatal("complete without Services")
		}
		services.mu.Lock()
		services.err = nil
		services.mu.Unlock()
		time.Sleep(pauseReady + 2*debounce)
		synctest.Wait()
		if !r.complete.Get() {
			t.Error("not complete half a second after its Services")
		}
	})
}
