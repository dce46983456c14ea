package edge

import (
	"math"
	"testing"
)

func TestShown(t *testing.T) {
	for _, own := range []Revision{1, 100, 1 << 41, maxShown} {
		for _, digest := range []uint32{0, 1 << 12, math.MaxUint32} {
			s := Shown(own, digest)
			if got, shown := s.Own(); got != own || !shown || s > math.MaxInt64 || s < 1<<62 {
				t.Errorf("%d is shown as %d, which is of %d, %t", own, s, got, shown)
			}
		}
		if got, shown := own.Own(); got != own || shown {
			t.Errorf("%d of the cloud is taken for one shown, of %d", own, got)
		}
	}
	if Shown(100, 0) == Shown(100, 1<<12) || Shown(100, 7<<12) == Shown(101, 7<<12) {
		t.Error("two forms have one revision")
	}
	if got := Shown(maxShown+1, 5); got != maxShown+1 {
		t.Errorf("one that is too large is shown as %d", got)
	}
}
