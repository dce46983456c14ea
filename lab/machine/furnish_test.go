package machine

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What statfs tells of a mount, as the kernel's statfs.h defines it.
const (
	stReadOnly = 1
	stNoSuid   = 2
	stNoDev    = 4
	stNoExec   = 8
	stValid    = 0x20
	stRelAtime = 0x1000
)

func TestRestrictionsAreKept(t *testing.T) {
	for statfs, want := range map[int64]uintptr{
		0:                    0,
		stValid | stRelAtime: 0,
		stValid | stNoSuid | stNoDev | stRelAtime:  unix.MS_NOSUID | unix.MS_NODEV,
		stReadOnly | stNoSuid | stNoDev | stNoExec: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
	} {
		if got := restrictions(statfs); got != want {
			t.Errorf("restrictions(%#x) = %#x, want %#x", statfs, got, want)
		}
	}
}
