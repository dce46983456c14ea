package kit

import "testing"

func TestMemoryIn(t *testing.T) {
	m, err := memoryIn("Name:\tx\nVmHWM:\t  300 kB\nVmRSS:\t 200 kB\nRssAnon:\t  100 kB\nThreads:\t7\n")
	if want := (Memory{Anonymous: 100 << 10, RSS: 200 << 10, MostRSS: 300 << 10}); err != nil || m != want {
		t.Errorf("%+v, %v, want %+v", m, err, want)
	}
	for _, bad := range []string{"", "VmHWM:\t 1 kB\nVmRSS: 1 kB\n", "VmHWM: 1 kB\nVmRSS: many kB\nRssAnon: 1 kB\n"} {
		if m, err := memoryIn(bad); err == nil {
			t.Errorf("%q: %v", bad, m)
		}
	}
}
