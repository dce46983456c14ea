package lab

import (
	"os"
	"os/exec"
	"strings"

	"yurtcoordinator/lab/machine"
)

// NoContainers says why containers can't run on this machine; empty means that they can.
func NoContainers() string {
	if os.Geteuid() != 0 {
		return noContainersUnprivileged()
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

// noContainersUnprivileged does the checks of NoContainers for a user other than root. Containers then do without cgroups, but
// their images need more ids than the user's own.
func noContainersUnprivileged() string {
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			return "not root, and there is no " + program + " (Debian's package uidmap)"
		}
	}
	if _, err := granted(); err != nil {
		return "not root, and " + err.Error()
	}
	return ""
}
