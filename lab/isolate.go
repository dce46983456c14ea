package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The lab's own process is pid 1 of new namespaces and is root in them. If root starts it, it is also root outside. If
// anybody else starts it, it lives in a user namespace whose root is that user:
//
//   - for hollow kubelets there is only the user's own id. The kernel allows that to everybody; every file that the lab
//     makes belongs to the user.
//   - for containers, whose images have files of many owners, there are also the ids of /etc/subuid and /etc/subgid.
//     newuidmap and newgidmap, which are privileged, map them. They need an existing process, and the kernel gives root's
//     rights only at an execve: so the process waits for its ids and executes itself again.
//
// unshare --map-auto of util-linux also does the second, but only since its release 2.38, and it leaves a process
// outside.

const isolated = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWUTS

// isolate starts this program, whose file is self, with args, in new namespaces, in which it is root. The program must call
// becomeRoot first. For a caller other than root, ids are the ids that the program gets besides the caller's own.
func isolate(self string, log *os.File, ids grants, namespaces uintptr, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	switch {
	case os.Geteuid() == 0:
	case len(ids.users) == 0 || len(ids.groups) == 0:
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	default:
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		return cmd, startMapped(cmd, ids)
	}
	return cmd, refused(cmd.Start())
}

// startMapped starts cmd and maps ids into its user namespace while it waits.
func startMapped(cmd *exec.Cmd, ids grants) error {
	wait, mapped, err := os.Pipe()
	if err != nil {
		return err
	}
	defer mapped.Close()
	cmd.ExtraFiles = []*os.File{wait} // becomes mappedFD
	cmd.Env = append(cmd.Env, waitForID)
	err = refused(cmd.Start())
	wait.Close()
	if err != nil {
		return err
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	for _, m := range []struct {
		program string
		ids     []string
	}{
		{"newuidmap", mapping(os.Geteuid(), ids.users)},
		{"newgidmap", mapping(os.Getegid(), ids.groups)},
	} {
		out, runErr := exec.Command(m.program, append([]string{pid}, m.ids...)...).CombinedOutput()
		if runErr != nil {
			err = fmt.Errorf("%s %s %s: %w: %s", m.program, pid, strings.Join(m.ids, " "), runErr, bytes.TrimSpace(out))
			break
		}
	}
	if err == nil {
		_, err = mapped.Write([]byte{1})
	}
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	return nil
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// mappedFD is the number of an open file. If waitForID is in a process's environment, one byte in that file tells the process
// that its ids are mapped.
const (
	mappedFD  = 3
	waitForID = "YURTLAB_WAIT_FOR_IDS=yes"
)

// becomeRoot returns at once in a process that already has root's rights. A process that isolate told to wait has them later:
// it waits until the parent has made it root of its user namespace. Then it executes the program again, and becomeRoot returns
// only if that fails. (To be user 0 is not enough: the ids may exist before this check.)
func becomeRoot() error {
	env := os.Environ()
	i := slices.Index(env, waitForID)
	if i < 0 {
		return nil
	}
	unix.CloseOnExec(mappedFD)
	if n, err := unix.Read(mappedFD, make([]byte, 1)); n != 1 {
		return errors.Join(errors.New("whoever started this ended before it mapped the ids"), err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, slices.Delete(env, i, i+1))
}

// span is a range of ids of the host.
type span struct{ start, count int }

// grants are the ids that the system lets an ordinary user map into user namespaces, besides the user's own.
type grants struct{ users, groups []span }

// granted reads the caller's grants. Root needs none, and gets none.
func granted() (grants, error) {
	if os.Geteuid() == 0 {
		return grants{}, nil
	}
	id := strconv.Itoa(os.Geteuid())
	name := id
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	var g grants
	for path, spans := range map[string]*[]span{"/etc/subuid": &g.users, "/etc/subgid": &g.groups} {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return grants{}, err
		}
		*spans = subordinate(string(content), name, id)
	}
	if total(g.users) < idsForContainers || total(g.groups) < idsForContainers {
		return grants{}, fmt.Errorf("user %s has fewer than %d ids in /etc/subuid and /etc/subgid; to grant them: "+
			"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %[1]s "+
			"(other numbers if others have those)",
			name, idsForContainers)
	}
	return g, nil
}

// idsForContainers is the highest id in images, nobody's 65534, in a namespace that begins with the user's own as 0.
const idsForContainers = 65534

// subordinate returns the ranges that a file such as /etc/subuid ("name:start:count" in each line) grants to a user, by
// name or by number.
func subordinate(content, name, id string) []span {
	var spans []span
	for line := range strings.Lines(content) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || (fields[0] != name && fields[0] != id) {
			continue
		}
		start, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			continue
		}
		count, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && count > 0 {
			spans = append(spans, span{int(start), int(count)})
		}
	}
	return spans
}

func total(spans []span) int {
	n := 0
	for _, s := range spans {
		n += s.count
	}
	return n
}

// mapping returns the arguments of newuidmap: own becomes 0, the spans follow from 1.
func mapping(own int, spans []span) []string {
	args := []string{"0", strconv.Itoa(own), "1"}
	for next := 1; len(spans) > 0; spans = spans[1:] {
		args = append(args, strconv.Itoa(next), strconv.Itoa(spans[0].start), strconv.Itoa(spans[0].count))
		next += spans[0].count
	}
	return args
}

// environment returns the lab's environment, made from the caller's. PATH has the directories of root's programs, which a
// user's PATH often lacks. Settings of proxies are left out, so that none stands between the lab and its own addresses.
func environment(environ []string) []string {
	var env []string
	path := ""
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		switch strings.ToUpper(name) {
		case "PATH":
			path = value
		case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "XDG_RUNTIME_DIR", "KUBECONFIG":
		default:
			env = append(env, e)
		}
	}
	dirs := filepath.SplitList(path)
	dirs = append(dirs, "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
	return append(env, "PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
}

// refused adds to a kernel's refusal what the user can do about it.
func refused(err error) error {
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, remedy(wholeMachine(), func(path string) string {
		content, _ := os.ReadFile("/proc/sys/" + path) // a setting that this kernel lacks refuses nothing
		return strings.TrimSpace(string(content))
	}))
}

// wholeMachine reports whether the caller is the machine's root, not only root of a user namespace.
func wholeMachine() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return os.Geteuid() == 0 && err == nil && strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295"
}

// remedy says what to do when the kernel refuses namespaces or mounts, from the kernel's settings.
func remedy(root bool, setting func(path string) string) string {
	switch {
	case root:
		return "the lab makes namespaces and mounts: in a container, that needs a privileged one " +
			"(docker run --privileged)"
	case setting("user/max_user_namespaces") == "0":
		return "user namespaces are off; to allow them: sudo sysctl -w user.max_user_namespaces=15000, " +
			"or run the lab as root"
	case setting("kernel/unprivileged_userns_clone") == "0":
		return "user namespaces are root's only; to allow them: sudo sysctl -w kernel.unprivileged_userns_clone=1, " +
			"or run the lab as root"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor restricts user namespaces; to allow them: " +
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run the lab as root"
	}
	return "the lab makes a user namespace and mounts /proc in it, which containers usually forbid " +
		"(seccomp, a partly hidden /proc): run the lab as root, or outside of the container"
}
