package lab

import (
	"os"
	"strings"

	"yurtcoordinator/internal/lab/machine"
)

// NoContainers says why containers can't run on this machine, or nothing if they can.
func NoContainers() string {
	if os.Geteuid() != 0 {
		return "not root, and cgroups can't be made without being root"
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(filesystems), "cgroup") {
		return "the kernel has no cgroups"
	}
	// The machine's own cgroup must be creatable: in many containers the hierarchies are read-only.
	if err := machine.ProbeCgroups(cgroup("probe")); err != nil {

		return "cgroups can't be made: " + err.Error()
	}
	return ""
}
