package edge

import "testing"

func TestNamesOfSlots(t *testing.T) {
	all := make(map[string]string)
	for _, p := range []PoolName{"p", "p-1", "1-p", "p.1", "1"} {
		for _, s := range Slots() {
			if !s.Valid() {
				t.Errorf("slot %d is none", s)
			}
			for _, name := range []string{p.CoordinatorSecretIn(s), s.App() + "-" + string(p)} {
				of := string(p) + " in slot " + s.ServerKey()
				if other, taken := all[name]; taken {
					t.Errorf("%s is of %s and of %s", name, other, of)
				}
				all[name] = of
			}
		}
	}
	if got := PoolName("p").CoordinatorSecret(); got != "yurt-coordinator-p-certs" {
		t.Errorf("slot 0 has %s", got)
	}
	if len(Slots()) != MaxSlots || Slot(0).App() != "yurt-coordinator" || Slot(2).App() != "yurt-coordinator--2" {
		t.Errorf("%v, %s, %s", Slots(), Slot(0).App(), Slot(2).App())
	}
}
