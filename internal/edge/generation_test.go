package edge

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math"
	"testing"
)

func TestGeneration(t *testing.T) {
	for text, want := range map[string]Generation{
		"0.0": {}, "0.1": {0, 1}, "1.7": {1, 7}, "2.1795000000": {2, 1795000000}, "2.18446744073709551615": {2, math.MaxUint64},
	} {
		got, err := ParseGeneration(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"1", ".", "0.", ".1", "3.1", "-1.1", "0.-1", "00.1", "0.01", "+0.1", "0.+1", "0.1.2", " 0.1", "0.1 ", "0x1.1", "0.1e3",
		"0.1_0", "0.18446744073709551616", "99999999999999999999.1", "many", "0.x",
	} {
		if got, err := ParseGeneration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestBeforeThereWereGenerations: a certificate of then has no serial number in its subject.
func TestBeforeThereWereGenerations(t *testing.T) {
	got, err := GenerationIn(&x509.Certificate{})
	if err != nil || got != (Generation{}) || !(Generation{0, 1}).Younger(got) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := GenerationIn(&x509.Certificate{Subject: pkix.Name{SerialNumber: "1.5"}}); err != nil ||
		got != (Generation{1, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := GenerationIn(&x509.Certificate{Subject: pkix.Name{SerialNumber: "C 4711"}}); err == nil {
		t.Error("the serial number of a thing is a generation")
	}
}

func TestYounger(t *testing.T) {
	for _, tt := range []struct {
		is, than Generation
		want     bool
	}{
		{Generation{}, Generation{}, false},
		{Generation{0, 2}, Generation{0, 1}, true},
		{Generation{0, 1}, Generation{0, 2}, false},
		{Generation{0, 2}, Generation{0, 2}, false},
		{Generation{1, 9}, Generation{0, 1}, false},
		{Generation{0, 9}, Generation{1, 1}, false},
		{Generation{2, 2}, Generation{2, 1}, true},
	} {
		if got := tt.is.Younger(tt.than); got != tt.want {
			t.Errorf("%v younger than %v: %v", tt.is, tt.than, got)
		}
	}
}

func TestSlots(t *testing.T) {
	for s, want := range map[Slot][2]string{
		0: {"server", "generation"}, 1: {"server-1", "generation-1"}, 2: {"server-2", "generation-2"},
	} {
		if got := [2]string{s.ServerKey(), s.GenerationKey()}; got != want || !s.Valid() {
			t.Errorf("%d: %v, valid: %v", s, got, s.Valid())
		}
	}
	if Slot(-1).Valid() || Slot(3).Valid() {
		t.Error("a pool has slots that it has not")
	}
}

// TestGenerationInAFile: it is kept as it is in a certificate.
func TestGenerationInAFile(t *testing.T) {
	text, err := json.Marshal(Generation{1, 7})
	if err != nil || string(text) != `"1.7"` {
		t.Errorf("%s, %v", text, err)
	}
	var got Generation
	if err := json.Unmarshal(text, &got); err != nil || got != (Generation{1, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`"7"`), &got); err == nil {
		t.Error("a number alone is a generation")
	}
}
