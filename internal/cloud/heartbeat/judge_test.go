package heartbeat

import (
	"math"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const silenceAfter = 40 * time.Second
	kubelet := 40 * time.Second // a kubelet's Lease duration
	for _, tt := range []struct {
		name  string
		o     Observation
		want  Verdict
		holds time.Duration
	}{
		{"no Lease", Observation{}, NoLease, 0},
		{"just found", Observation{Found: true, LeaseDuration: kubelet}, Unobserved, 40 * time.Second},
		{"just found, annotated", Observation{Found: true, Annotated: true}, Unobserved, 40 * time.Second},
		{"found and never renewed", Observation{Found: true, Age: 40 * time.Second}, Silent, 0},
		{"renewed", Observation{Found: true, Renewed: true, LeaseDuration: kubelet}, Direct, 40 * time.Second},
		{"renewed a while ago", Observation{Found: true, Renewed: true, Age: 30 * time.Second}, Direct,
			10 * time.Second},
		{"renewed, annotated", Observation{Found: true, Renewed: true, Annotated: true}, Delegated, 40 * time.Second},
		{"renewed by itself, over another's line", Observation{Found: true, Renewed: true, Annotated: true, Relayed: true},
			Delegated, 40 * time.Second},
		{"says who relays, and bears no mark", Observation{Found: true, Renewed: true, Relayed: true}, Direct, 40 * time.Second},
		{"one short of silence", Observation{Found: true, Renewed: true, Age: 40*time.Second - 1}, Direct, 1},
		{"silent at the second", Observation{Found: true, Renewed: true, Age: 40 * time.Second}, Silent, 0},
		{"silent, annotated", Observation{Found: true, Renewed: true, Annotated: true, Age: time.Hour}, Silent, 0},
		{"deleted", Observation{Found: true, Renewed: true, Gone: true}, Silent, 0},
		{"a slow node may be slow", Observation{Found: true, Renewed: true, Age: 55 * time.Second,
			LeaseDuration: 200 * time.Second}, Direct, 45 * time.Second},
		{"a Lease for ever", Observation{Found: true, Renewed: true, Age: 5 * time.Minute,
			LeaseDuration: math.MaxInt32 * time.Second}, Silent, 0},
		{"a negative duration", Observation{Found: true, Renewed: true, LeaseDuration: math.MinInt32 * time.Second},
			Direct, 40 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, holds := Judge(tt.o, silenceAfter)
			if got.Verdict != tt.want || holds != tt.holds {
				t.Errorf("Judge = %v for %v, want %v for %v", got.Verdict, holds, tt.want, tt.holds)
			}
			if got.Relayed != (tt.o.Relayed && tt.o.Annotated) {
				t.Errorf("Judge = %+v of %+v", got, tt.o)
			}
			if got.Annotated != tt.o.Annotated || got.Gone != tt.o.Gone {
				t.Errorf("Judge = %+v: lost the annotation or the deletion of %+v", got, tt.o)
			}
		})
	}
}
