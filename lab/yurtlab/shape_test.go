package yurtlab

import (
	"testing"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/line"
)

func TestShapeFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		flags shapeFlags
		want  lab.LinkShape
	}{
		"all": {
			shapeFlags{
				rate: "1mbit", loss: "2%", queue: "64k", delay: 300 * time.Millisecond, jitter: 40 * time.Millisecond,
				seed: 7, shared: true,
			},
			lab.LinkShape{
				Shape: line.Shape{
					Rate: 1e6, Loss: 0.02, Queue: 64 << 10, Delay: 300 * time.Millisecond, Jitter: 40 * time.Millisecond,
				},
				Seed: 7, Shared: true,
			},
		},
		"a rate has a queue": {shapeFlags{rate: "1mbit"}, lab.LinkShape{Shape: line.Shape{Rate: 1e6, Queue: 256 << 10}}},
		"a delay has none":   {shapeFlags{delay: time.Second}, lab.LinkShape{Shape: line.Shape{Delay: time.Second}}},
	} {
		if got, err := tt.flags.shape(true); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
	one, _ := shapeFlags{delay: time.Second}.shape(false)
	two, _ := shapeFlags{delay: time.Second}.shape(false)
	three, _ := shapeFlags{delay: time.Second}.shape(false)
	if one.Seed == two.Seed && two.Seed == three.Seed {
		t.Errorf("three random seeds are %d", one.Seed)
	}
}
