package wire

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestParseFault(t *testing.T) {
	for _, f := range []Fault{Drop, Reject, OneWay} {
		if got, err := ParseFault(f.String()); got != f || err != nil {
			t.Errorf("ParseFault(%q) = %v, %v", f, got, err)
		}
	}
	// A person heals with `link heal`, not by a fault called none.
	for _, name := range []string{"none", "", "Drop", "one-way"} {
		if got, err := ParseFault(name); got != None || err == nil {
			t.Errorf("ParseFault(%q) = %v, %v; want an error", name, got, err)
		}
	}
}

func TestBytes(t *testing.T) {
	now, mark := Bytes{Up: 10, Down: 7}, Bytes{Up: 4, Down: 7}
	if got := now.Sub(mark); got != (Bytes{Up: 6}) {
		t.Errorf("since the mark: %+v", got)
	}
	if got := now.Sub(mark).Add(mark); got != now {
		t.Errorf("there and back: %+v", got)
	}
}

func TestHardwareAddressesAreLocalAndDiffer(t *testing.T) {
	seen := map[string]string{}
	for pool := range 256 {
		four := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(pool), 254}), 24)
		six := netip.MustParsePrefix(fmt.Sprintf("fd00:10:78:%x::fe/64", pool))
		for _, of := range [][]netip.Prefix{{four}, {six}, {four, six}} {
			got := hardwareAddress(of)
			if len(got) != 6 || got[0] != 2 || seen[got.String()] != "" { // a local address of one machine
				t.Fatalf("%v has %s, as has %q", of, got, seen[got.String()])
			}
			seen[got.String()] = fmt.Sprint(of)
		}
	}
}

// The kernel compares all 16 bytes: what comes after the name must be zero.
func TestIfname(t *testing.T) {
	if got := string(ifname("w-p1-n1")); got != "w-p1-n1\x00\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%q", got)
	}
}
