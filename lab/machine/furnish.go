package machine

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSettings are those that a kubelet sets, or requires, for the whole kernel. In a machine they are the machine's own
// files, so the lab does not change the host, and the kubelet does not refuse to start. (pkg/kubelet/cm, Kubernetes 1.36)
var kernelSettings = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// networkSettings are set in the machine's own network namespace.
var networkSettings = map[string]string{
	"/proc/sys/net/ipv4/ip_forward":                 "1",
	"/proc/sys/net/ipv6/conf/all/forwarding":        "1",
	"/proc/sys/net/ipv4/conf/all/rp_filter":         "0",
	"/proc/sys/net/ipv4/conf/default/rp_filter":     "0",
	"/proc/sys/net/ipv4/conf/all/route_localnet":    "1",
	"/proc/sys/net/ipv4/ip_unprivileged_port_start": "0",
}

// furnish gives the machine its own file systems, name and settings.
func furnish(s Spec) error {
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	m := mounter{disk: s.Disk}
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	m.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	m.sysfs(s.Cgroup)

	// The disk and the kept directories may lie below a directory that is about to be covered; they are put back
	// afterwards.
	disk := m.open(s.Disk)
	keep := make([]string, len(s.Keep))
	for i, path := range s.Keep {
		keep[i] = m.open(path)
	}
	m.directory("var-log", "/var/log")
	m.directory("var-lib", "/var/lib")
	m.mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	m.mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	m.mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	m.mkdir("/run/lock")
	m.putBack(disk, s.Disk)
	for i, path := range s.Keep {
		m.putBack(keep[i], path)
		m.protect(path)
	}

	m.file("etc-hosts", "/etc/hosts", "127.0.0.1 localhost\n"+s.Hosts)
	m.file("etc-hostname", "/etc/hostname", s.Name+"\n")
	m.file("etc-resolv.conf", "/etc/resolv.conf", "")
	m.file("etc-machine-id", "/etc/machine-id", machineID(s.Name)+"\n")
	m.file("boot_id", "/proc/sys/kernel/random/boot_id", uuid()+"\n")
	for path, value := range kernelSettings {
		m.file("sys-"+strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", "-"), path, value+"\n")
	}
	for path, value := range networkSettings {
		m.write(path, value)
	}
	// From here on nothing in the machine can change the host's files.
	m.protect("/")
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
	return m.err
}

// mounter takes one step after the other until one fails.
type mounter struct {
	disk string
	err  error
}

func (m *mounter) mount(source, target, fstype string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s at %s: %w", source+fstype, target, err)
	}
}

// open returns a path that leads to a directory even when something is mounted over the directory. The directory stays open:
// the process that furnishes a machine lives as long as the machine.
func (m *mounter) open(path string) string {
	if m.err != nil {
		return ""
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	m.err = err
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// putBack mounts a directory from open at its original path again.
func (m *mounter) putBack(opened, path string) {
	m.mkdir(path)
	m.mount(opened, path, "", unix.MS_BIND, "")
}

// protect makes the mount at path read-only, and keeps its other restrictions. In a user namespace the kernel does not allow to
// remove restrictions that the host set.
func (m *mounter) protect(path string) {
	if m.err != nil {
		return
	}
	var at unix.Statfs_t
	if err := unix.Statfs(path, &at); err != nil {
		m.err = fmt.Errorf("mount flags of %s: %w", path, err)
		return
	}
	m.mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|restrictions(at.Flags), "")
}

// restrictions returns the mount flags that a remount must repeat, because it would lift them otherwise. It takes them from the
// flags that statfs reports, which have the same values. (A remount that does not name access times leaves them alone.)
func restrictions(statfs int64) uintptr {
	return uintptr(statfs) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
}

func (m *mounter) mkdir(path string) {
	if m.err == nil {
		m.err = os.MkdirAll(path, 0o755)
	}
}

// directory mounts a directory of the machine's disk at target.
func (m *mounter) directory(name, target string) {
	m.mkdir(filepath.Join(m.disk, name))
	m.mount(filepath.Join(m.disk, name), target, "", unix.MS_BIND, "")
}

// file mounts a file of the machine's disk, with this content, over target, if the host has such a file.
func (m *mounter) file(name, target, content string) {
	if m.err != nil {
		return
	}
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		return
	}
	path := filepath.Join(m.disk, name)
	if m.err = os.WriteFile(path, []byte(content), 0o644); m.err == nil {
		// target may be a link, as /etc/resolv.conf often is; mount over its real place. A dangling link was skipped
		// above.
		if place, err := filepath.EvalSymlinks(target); err == nil {
			target = place
		}
		m.mount(path, target, "", unix.MS_BIND, "")
	}
}

func (m *mounter) write(path, value string) {
	if m.err != nil {
		return
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.err = err
	}
}

// sysfs makes /sys show the machine's own network, and its own part of the cgroups if it has one.
func (m *mounter) sysfs(cgroup string) {
	if m.err != nil {
		return
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if cgroup == "" {
		// A machine without its own cgroups needs no other view of /sys than its own network's. If the kernel refuses
		// that (in some user namespaces), the host's view does no harm. A real kubelet requires cgroups in view, even
		// if they are only the host's, which it can't change.
		host := m.open(cgroupRoot)
		if m.err == nil && unix.Mount("sysfs", "/sys", "sysfs", flags, "") == nil {
			m.mount(host, cgroupRoot, "", unix.MS_BIND|unix.MS_REC, "")
		}
		return
	}
	m.mount("sysfs", "/sys", "sysfs", flags, "")
	if m.err == nil {
		m.err = mountCgroups()
	}
}

// machineID is always the same for a name: 32 hexadecimal digits, as in /etc/machine-id.
func machineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x", sum[:16])
}

func uuid() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, by its contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
