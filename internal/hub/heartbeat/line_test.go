package heartbeat

import (
	"testing"
	"time"
)

func TestGauge(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1e9, 0)
	g := &gauge{}
	g.answered(20 * ms)
	g.answered(20 * ms)
	if line, ok := g.says(now); ok {
		t.Errorf("two answers say %s", line)
	}
	for range 30 {
		g.answered(20 * ms)
	}
	if line, ok := g.says(now); !ok || line.String() != "20/0/0/free" {
		t.Errorf("a steady line is %s, %v", line, ok)
	}
	for range 6 { // a minute on another line
		g.answered(600 * ms)
	}
	if line, _ := g.says(now); line.Answer < 300*ms || line.Answer > 400*ms || line.Spread < 200*ms {
		t.Errorf("a minute on a slow line is %s", line)
	}
	for range 40 {
		g.answered(600 * ms)
	}
	if line, _ := g.says(now); line.Answer < 590*ms || line.Spread > 10*ms {
		t.Errorf("a steady slow line is %s", line)
	}
	for range 5 { // one in five is sent again
		g.answered(600 * ms)
		g.answered(600 * ms)
		g.answered(1800 * ms)
		g.answered(600 * ms)
		g.answered(600 * ms)
	}
	if line, _ := g.says(now); line.Answer < 650*ms || line.Spread < 100*ms {
		t.Errorf("a lossy line is %s", line)
	}
	for i := range 100 {
		g.missed(now.Add(time.Duration(i) * time.Second))
	}
	if line, _ := g.says(now.Add(100 * time.Second)); line.Lost != lostMost {
		t.Errorf("of a hundred that were lost %d count", line.Lost)
	}
	if line, _ := g.says(now.Add(100*time.Second + lostCounts)); line.Lost != 0 {
		t.Errorf("after ten minutes %d count", line.Lost)
	}
}
