package resident

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const smaps = `00400000-01365000 r-xp 00000000 fe:00 1234  /opt/my hub
Size:              15764 kB
Rss:               12064 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01365000-02227000 r--p 00f65000 fe:00 1234  /opt/my hub
Anonymous:             0 kB
02227000-02228000 r--p 00f65000 fe:00 1234  /opt/my hub
Anonymous:             4 kB
02228000-022b1000 rw-p 01e27000 fe:00 1234  /opt/my hub
Anonymous:             0 kB
7f0000000000-7f0000001000 r--s 00000000 fe:00 99  /var/lib/yurthub/cache/db
Anonymous:             0 kB
7f0000001000-7f0000002000 r--p 00000000 00:00 0
Anonymous:             0 kB
7ffc0000a000-7ffc0000c000 r-xp 00000000 00:00 0  [vdso]
Anonymous:             0 kB
`

func TestUntouched(t *testing.T) {
	got, err := untouched(strings.NewReader(smaps), "/opt/my hub")
	if want := []mapping{{0x400000, 0x1365000}, {0x1365000, 0x2227000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x: what is the program's and has never been written to", got, err, want)
	}
	if got, err := untouched(strings.NewReader("nonsense r-xp 0 0 0 /p\n"), "/p"); err == nil {
		t.Errorf("of nonsense: %x", got)
	}
}

// TestTrim: this program goes on, with less of its file in memory.
func TestTrim(t *testing.T) {
	before := resident(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), settled+2*every+time.Second)
		defer cancel()
		if err := Trim(ctx); err != nil {
			t.Error(err)
		}
	})
	if pages, err := unused(); err != nil || len(pages) == 0 {
		t.Errorf("mapped: %v, %v", pages, err)
	}
	if after := resident(t); after >= before {
		t.Errorf("RssFile was %d kB and is %d", before, after)
	}
}

// resident is how much of files this process has in memory, in kB.
func resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatal("no RssFile")
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
