package edge

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestHubReport(t *testing.T) {
	r := HubReport{
		Link: "up", Carried: Carried{"watch": {1, 2}}, Troubles: []HubTrouble{TroubleDisk}, Settings: 3,
		Certificates: map[string]Life{CertificateClient: {10, 20}},
	}
	if got, ok := ParseHubReport(r.String()); !ok || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %t, want %+v", got, ok, r)
	}
	long := `{"link":"up","x":"` + strings.Repeat("x", 1<<15) + `"}`
	for _, text := range []string{"", "{}", `{"link":"fast"}`, `{"link":"up"`, long} {
		if got, ok := ParseHubReport(text); ok {
			t.Errorf("%.40s is read as %+v", text, got)
		}
	}
	lies := `{"link":"up","carried":{"watch":[1152921504606846977,0],"lies":[1,1],"list":[1,1]},"settings":-1,` +
		`"troubles":["x","disk","disk"],"certificates":{"client":{"from":2,"until":1},"x":{"from":1,"until":2}}}`
	want := HubReport{Link: "up", Carried: Carried{"list": {1, 1}}, Troubles: []HubTrouble{TroubleDisk},
		Certificates: map[string]Life{}}
	if got, ok := ParseHubReport(lies); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("of lies %+v is left, %t, want %+v", got, ok, want)
	}
}

func TestPoolHubs(t *testing.T) {
	p := PoolHubs{
		Term: 7, Links: map[string]int{"up": 2}, Carried: Carried{"watch": {1, 2}}, Answer: 12, Lost: 1,
		OldestSettings: 1, NewestSettings: 2,
		Certificates: map[string]Life{CertificateServing: {10, 20}},
		Troubles:     map[HubTrouble][]NodeName{TroubleDamage: {"n1"}}, More: 1,
	}
	if got, ok := ParsePoolHubs(p.String()); !ok || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %t, want %+v", got, ok, p)
	}
	var many []string
	for i := range MostTroubled + 5 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprint("n", i)))
	}
	lies := `{"links":{"up":-1,"fast":1},"more":-1,"lost":-1,"answer":-1,"oldestSettings":-1,"troubles":{"x":["n"],"disk":[` +
		strings.Join(many, ",") + `]}}`
	got, ok := ParsePoolHubs(lies)
	if !ok || len(got.Links) > 0 || got.More+got.Lost+int(got.Answer+got.OldestSettings) != 0 || len(got.Troubles) != 1 ||
		len(got.Troubles[TroubleDisk]) != MostTroubled {
		t.Errorf("of lies %+v is left, %t", got, ok)
	}
	if _, ok := ParsePoolHubs("up"); ok {
		t.Error("read what is no JSON")
	}
}

// A hub that has started anew counts from zero, which is no step back.
func TestCarried(t *testing.T) {
	before := Carried{"watch": {100, 10}, "list": {5, 5}}
	now := Carried{"watch": {20, 15}, "list": {5, 5}, "read": {1, 0}}
	news := now.Since(before)
	if want := (Carried{"watch": {20, 5}, "read": {1, 0}}); !reflect.DeepEqual(news, want) {
		t.Errorf("%v is new, want %v", news, want)
	}
	before.Add(news)
	if want := (Carried{"watch": {120, 15}, "list": {5, 5}, "read": {1, 0}}); !reflect.DeepEqual(before, want) {
		t.Errorf("the sum is %v, want %v", before, want)
	}
}

func TestLife(t *testing.T) {
	for now, want := range map[int64]float64{0: 1, 100: 1, 150: .5, 175: .25, 200: 0, 300: 0} {
		if got := (Life{100, 200}).Left(time.Unix(now, 0)); got != want {
			t.Errorf("at %d %v is left, want %v", now, got, want)
		}
	}
	if (Life{}).Left(time.Unix(0, 0)) != 0 {
		t.Error("something is left of no life")
	}
}
