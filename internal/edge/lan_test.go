package edge

import (
	"fmt"
	"testing"
)

func TestLANAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "[]",
		" ":                         "[]",
		"10.0.0.7":                  "[10.0.0.7]",
		"fd00::7, 10.0.0.7":         "[fd00::7 10.0.0.7]",
		"::ffff:10.0.0.7":           "[10.0.0.7]",
		"10.0.0.7,10.0.0.8":         "none",
		"fd00::7,10.0.0.7,10.0.0.8": "none",
		"fd00::7,::ffff:10.0.0.7,x": "none",
		"127.0.0.1":                 "none",
		"::1":                       "none",
		"0.0.0.0":                   "none",
		"fe80::1":                   "none",
		"fd00::7%eth0":              "none",
		"224.0.0.1":                 "none",
		"10.0.0.7:10270":            "none",
		"node.example":              "none",
		"10.0.0.7,":                 "none",
		"10.0.0.0/24":               "none",
	} {
		all, err := ParseLANAddresses(text)
		got := fmt.Sprint(all)
		if err != nil {
			got = "none"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
		if said := LANAddresses(map[string]string{AnnotationLANAddress: text}); err != nil && said != nil {
			t.Errorf("%q says %v", text, said)
		}
	}
}
