package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// On machines without their own cgroups, containerd runs a script instead of runc. containerd puts every container into
// a cgroup (since version 2 no setting prevents that), and runc fails if it can't make that cgroup, or can't set a
// limit that a Pod asks for. The script calls this program, the machine's first process, which removes both from a
// container's description and then calls runc.

// runcArg makes this program stand in for runc. The path of the real runc and its arguments follow.
const runcArg = "lab-runc"

func runcScript(runc string) string {
	return fmt.Sprintf("#!/bin/sh\ncase \" $* \" in\n*' create '*) exec /proc/1/exe %s '%[2]s' \"$@\" ;;\nesac\n"+
		"exec '%[2]s' \"$@\"\n", runcArg, runc)
}

// runWithoutCgroups runs runc with args for a container without cgroups. It returns only on failure.
func runWithoutCgroups(runc string, args []string) error {
	if bundle := bundleOf(args); bundle != "" {
		path := filepath.Join(bundle, "config.json")
		spec, err := os.ReadFile(path)
		if err == nil {
			spec, err = withoutCgroups(spec)
		}
		if err == nil {
			err = os.WriteFile(path, spec, 0o600)
		}
		if err != nil {
			return fmt.Errorf("container without cgroups: %w", err)
		}
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// bundleOf finds the directory of a container's description in runc's arguments.
func bundleOf(args []string) string {
	for i, a := range args {
		name, value, joined := strings.Cut(a, "=")
		switch {
		case !slices.Contains([]string{"--bundle", "-bundle", "-b", "--b"}, name):
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// withoutCgroups removes the cgroup and its limits from a container's description, and the container's view of cgroups.
func withoutCgroups(spec []byte) ([]byte, error) {
	in := json.NewDecoder(bytes.NewReader(spec))
	in.UseNumber() // some numbers do not fit into a float64
	var all map[string]any
	if err := in.Decode(&all); err != nil {
		return nil, err
	}
	linux, ok := all["linux"].(map[string]any)
	if !ok {
		return nil, errors.New("no linux section")
	}
	delete(linux, "cgroupsPath")
	delete(linux, "resources")
	if mounts, ok := all["mounts"].([]any); ok {
		all["mounts"] = slices.DeleteFunc(mounts, func(m any) bool {
			mount, ok := m.(map[string]any)
			return ok && mount["type"] == "cgroup"
		})
	}
	return json.Marshal(all)
}
