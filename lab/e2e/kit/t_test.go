package kit

import (
	"bytes"
	"context"
	"testing"
)

func TestAssertionsEndTheScenario(t *testing.T) {
	tt := &T{out: &bytes.Buffer{}, figures: map[string]float64{}, Ctx: context.Background()}
	err := tt.Protect(func(t *T) { t.Fail("broken: %d", 7) })
	if err == nil || err.Error() != "broken: 7" {
		t.Errorf("protect = %v", err)
	}
}
