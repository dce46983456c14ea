package wire

import (
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
	one, two := hardwareAddress(netip.MustParseAddr("10.78.1.254")), hardwareAddress(netip.MustParseAddr("10.78.2.254"))
	if one.String() != "02:00:0a:4e:01:fe" || two.String() != "02:00:0a:4e:02:fe" {
		t.Errorf("%s and %s", one, two)
	}
}

// The kernel compares all 16 bytes: what comes after the name must be zero.
func TestIfname(t *testing.T) {
	if got := string(ifname("w-p1-n1")); got != "w-p1-n1\x00\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%q", got)
	}
}
