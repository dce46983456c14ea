package edge

import (
	"maps"
	"math"
	"testing"
	"time"
)

func TestTraffic(t *testing.T) {
	for _, all := range []map[NodeName]Traffic{
		{},
		{"n1": {Sent: 1, Received: 2, Since: time.Unix(3, 0)}},
		{"n1": {Since: time.Unix(0, 0)}, "n-2.x": {Sent: math.MaxUint64, Received: 1 << 40, Since: time.Unix(1767225600, 0)}},
	} {
		if got := SplitTraffic(JoinTraffic(all)); !maps.Equal(got, all) {
			t.Errorf("%v came back as %v", all, got)
		}
	}
	two := map[NodeName]Traffic{"b": {Since: time.Unix(7, 0)}, "a": {Sent: 1, Since: time.Unix(7, 0)}}
	if got := JoinTraffic(two); got != "a=1/0/7,b=0/0/7" {
		t.Errorf("%q", got)
	}
	for _, lie := range []string{
		"", "1", "1/2", "1/2/3/4", "-1/2/3", "1/2/-3", "1/2/x", " 1/2/3", "1/2/3 ", "01/2/3", "18446744073709551616/2/3",
	} {
		if got, ok := ParseTraffic(lie); ok {
			t.Errorf("%q is %v", lie, got)
		}
		if got := SplitTraffic("a=1/2/3,b=" + lie + ",=1/2/3"); len(got) != 1 {
			t.Errorf("%q: %v", lie, got)
		}
	}
}
