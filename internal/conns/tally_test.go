package conns

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// TestWhoHasMostMakesRoom: the source with most connections loses one to a source with few. Many addresses of one stranger keep
// nobody out, and a source with few connections loses none.
func TestWhoHasMostMakesRoom(t *testing.T) {
	honest, late := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	all := newTally[netip.Addr](10, 40)
	honestConn := &net.TCPConn{}
	leave, _, ok := all.enter(honest, honestConn)
	if !ok {
		t.Fatal("the first is not let in")
	}
	leaves := []func(){leave}
	lost := 0
	for round := range 10 {
		for i := range 30 {
			done, crowded, ok := all.enter(netip.MustParseAddr(fmt.Sprintf("10.0.1.%d", i)), &net.TCPConn{})
			if !ok && round < 2 {
				t.Fatalf("address %d is not let in", i)
			}
			if ok {
				leaves = append(leaves, done)
			}
			if crowded != nil {
				lost++
			}
			if crowded == honestConn {
				t.Fatal("who has one connection has lost it to who has more")
			}
			if all.total > 40 {
				t.Fatalf("%d are in", all.total)
			}
		}
	}
	if lost == 0 {
		t.Error("nobody has made room")
	}
	done, crowded, ok := all.enter(late, &net.TCPConn{})
	if !ok || crowded == nil || crowded == honestConn {
		t.Errorf("who comes late: %v, and %v makes room", ok, crowded)
	}
	for _, leave := range append(leaves, done, leave) {
		leave()
	}
	if all.total != 0 || len(all.open) != 0 {
		t.Errorf("%d are in, of %v, when all have left", all.total, all.open)
	}
}
