package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is one cgroup hierarchy. One of version 1 has controllers or a name; the one of version 2 has neither.
type hierarchy struct {
	// options are the mount options that select it: "cpu,cpuacct", "name=systemd"; empty for version 2.
	options string
	// path is its mount point on the host.
	path string
}

// has reports whether the hierarchy is of version 1 and has this controller.
func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.options, ","), controller)
}

// hierarchies reads the mounted hierarchies from /proc/self/mountinfo.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []hierarchy
	for s := bufio.NewScanner(f); s.Scan(); {
		h, ok := parseMount(s.Text())
		again := func(o hierarchy) bool { return o.options == h.options }
		if ok && !slices.ContainsFunc(found, again) {
			found = append(found, h)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return found, nil
}

// parseMount reads a line of mountinfo: "36 35 0:31 / /sys/fs/cgroup/cpu rw,… - cgroup cgroup rw,cpu,cpuacct".
func parseMount(line string) (hierarchy, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, kind := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(kind) < 3 {
		return hierarchy{}, false
	}
	switch kind[0] {
	case "cgroup2":
		return hierarchy{path: fields[4]}, true
	case "cgroup":
		var options []string
		for _, o := range strings.Split(kind[2], ",") {
			// The rest are general mount options, such as rw and xattr.
			if strings.HasPrefix(o, "name=") || slices.Contains(controllers, o) {
				options = append(options, o)
			}
		}
		return hierarchy{options: strings.Join(options, ","), path: fields[4]}, len(options) > 0
	}
	return hierarchy{}, false
}

// controllers of cgroup version 1.
var controllers = []string{
	"cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "net_cls", "perf_event", "net_prio", "hugetlb",
	"pids", "rdma", "misc",
}

// unified reports whether containers use version 2, which they do unless a mounted hierarchy of version 1 manages memory.
// Hierarchies of version 1 without memory may exist nevertheless: some VPN clients mount net_cls for themselves.
func unified(all []hierarchy) bool {
	return !slices.ContainsFunc(all, func(h hierarchy) bool { return h.has("memory") })
}

// used returns the hierarchies in which machines have cgroups: only version 2's, or all.
func used(all []hierarchy) []hierarchy {
	if !unified(all) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(h hierarchy) bool { return h.options != "" })
}

// enterCgroups makes the machine's cgroup in each hierarchy, moves the calling process into it, and makes it the root
// of the cgroups that the calling thread sees.
func enterCgroups(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range used(all) {
		if err := h.enter(cgroup, unified(all)); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if !unified(all) {
		return nil
	}
	for _, h := range used(all) {
		if err := h.delegate(cgroup); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the cgroup and moves the calling process into it. With handDown, which is for version 2, each cgroup on the way
// also hands its controllers down to the next.
func (h hierarchy) enter(cgroup string, handDown bool) error {
	parent := h.path
	for part := range strings.SplitSeq(cgroup, "/") {
		dir := filepath.Join(parent, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h.has("cpuset") {
			// A new cpuset is empty, and no process may enter it before it is filled.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(parent, file))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
					return err
				}
			}
		}
		if handDown {
			if err := enableControllers(parent); err != nil {
				return err
			}
		}
		parent = dir
	}
	return os.WriteFile(filepath.Join(parent, "cgroup.procs"), []byte("0"), 0)
}

// delegate moves the calling process to a leaf, and hands all controllers down to the cgroup's children. In version 2 a cgroup
// with controllers may have no processes of its own.
func (h hierarchy) delegate(cgroup string) error {
	own := filepath.Join(h.path, cgroup)
	leaf := filepath.Join(own, "init")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	return enableControllers(own)
}

// enableControllers hands all controllers of a version 2 cgroup down to its children.
func enableControllers(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(available)) {
		// One by one: a controller that can't be handed down must not stop the others.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
	return nil
}

// mountCgroups mounts the hierarchies again, so that the machine sees its own cgroup as their root.
func mountCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if unified(all) {
		if err := unix.Mount("cgroup2", cgroupRoot, "cgroup2", flags, ""); err != nil {
			return fmt.Errorf("mount cgroup2: %w", err)
		}
		return nil
	}
	if err := unix.Mount("cgroup", cgroupRoot, "tmpfs", flags, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", cgroupRoot, err)
	}
	for _, h := range all {
		if err := mountHierarchy(h.options); err != nil {
			return err
		}
	}
	return nil
}

func mountHierarchy(options string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	fstype, dir, data := "cgroup", options, options
	switch name, named := strings.CutPrefix(options, "name="); {
	case options == "":
		fstype, dir = "cgroup2", "unified"
	case named:
		dir, data = name, "none,"+options
	}
	path := filepath.Join(cgroupRoot, dir)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fstype, path, fstype, flags, data); err != nil {
		if dir == "unified" {
			return os.Remove(path) // version 2 without controllers: nothing needs it
		}
		return fmt.Errorf("mount cgroup %s: %w", options, err)
	}
	if strings.Contains(dir, ",") {
		for part := range strings.SplitSeq(dir, ",") {
			if err := os.Symlink(dir, filepath.Join(cgroupRoot, part)); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveCgroups removes a cgroup and everything below it from every hierarchy. No process may be left in it.
func RemoveCgroups(cgroup string) { removeCgroups(cgroup) }

func removeCgroups(cgroup string) {
	all, err := hierarchies()
	if err != nil {
		return
	}
	for _, h := range all {
		removeTree(filepath.Join(h.path, cgroup))
	}
}

// removeTree removes a directory of a cgroup file system, children first. It tries for a second, because the kernel may take a
// moment to forget processes that have just ended.
func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	for range 100 {
		if err := os.Remove(dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ProbeCgroups makes a cgroup in every hierarchy and removes it again, to find out whether machines can have their own.
func ProbeCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(used(all)) == 0 {
		return errors.New("no cgroup hierarchy that manages memory is mounted")
	}
	for _, h := range used(all) {
		if err := h.probe(name, unified(all)); err != nil {
			return err
		}
	}
	return nil
}

func (h hierarchy) probe(name string, handDown bool) (err error) {
	dir, err := os.MkdirTemp(h.path, name+"-") // others may probe at the same time
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if !handDown {
		return nil
	}
	if err := enableControllers(h.path); err != nil {
		return err
	}
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	if err != nil {
		return err
	}
	given, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	return suits(h.path, string(kind), string(given))
}

// suits returns what is wrong with a new version 2 cgroup below parent, of this type and with these controllers.
func suits(parent, kind, given string) error {
	if kind := strings.TrimSpace(kind); kind != "domain" {
		return fmt.Errorf("new cgroups in %s are of type %q, want domain", parent, kind)
	}
	for _, needed := range []string{"cpu", "memory"} {
		if !slices.Contains(strings.Fields(given), needed) {
			return fmt.Errorf("%s does not hand the %s controller down: in a container, because processes are in it; "+
				"on a host, because the kernel has none", parent, needed)
		}
	}
	return nil
}
