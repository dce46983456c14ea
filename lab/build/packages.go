package build

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// PackagesConfig says what the machine must have.
type PackagesConfig struct {
	// Real requires what real containers need: a C compiler and libseccomp for runc, busybox for the shell image.
	Real bool

	// Unprivileged requires what real containers without root need: newuidmap.
	Unprivileged bool

	// Supply requires rpm, with which a release's packages are installed. dpkg exists wherever Debian packages can be
	// installed.
	Supply bool

	// Log is the file to which apt-get's output is appended.
	Log string

	// Progress, if set, is called with each step.
	Progress func(Event)
}

// need is a required tool, and the Debian package that provides it.
type need struct {
	what    string // for people
	debian  string
	present func() bool
}

// needs lists what a lab requires of the machine.
func needs(containers, unprivileged, supply bool) []need {
	list := []need{
		{"nsenter", "util-linux", program("nsenter")},
		{"iptables, for kube-proxy, kubelet and the CNI plugins", "iptables", program("iptables")},
		{"ps, to see what runs on a machine", "procps", program("ps")},
	}
	if containers {
		list = append(list,
			need{"a static busybox, for the Pods' images", "busybox-static", func() bool { return Busybox() != "" }},
			need{"systemd, for nodes that it runs hub and kubelet of", "systemd", file("/lib/systemd/systemd")},
			need{"a C compiler, for runc", "gcc", program("gcc")},
			need{"the C library's headers, for runc", "libc6-dev", file("/usr/include/stdlib.h")},
			need{"pkg-config, for runc", "pkg-config", program("pkg-config")},
			need{"libseccomp's headers, for runc", "libseccomp-dev", file("/usr/include/seccomp.h")})
	}
	if containers && unprivileged {
		list = append(list, need{"newuidmap, for containers without root", "uidmap", program("newuidmap")})
	}
	if supply {
		list = append(list, need{"rpm, to install a release's package", "rpm", program("rpm")})
	}
	return list
}

// Busybox returns the path of a statically linked busybox, which runs in an image with nothing else; empty means none.
func Busybox() string {
	for _, dir := range searchPath() {
		path := filepath.Join(dir, "busybox")
		if path, err := filepath.EvalSymlinks(path); err == nil && static(path) {
			return path
		}
	}
	return ""
}

// static reports whether a program needs no dynamic linker.
func static(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// searchPath is where programs are searched: PATH, and root's directories, which a user's PATH may lack.
func searchPath() []string {
	return append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
}

func program(name string) func() bool {
	return func() bool {
		for _, dir := range searchPath() {
			info, err := os.Stat(filepath.Join(dir, name))
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return true
			}
		}
		return false
	}
}

func file(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// machine holds the facts that decide who can install packages here.
type machine struct {
	debian bool // or a derivative
	root   bool
	aptGet bool
}

func thisMachine() machine {
	release, _ := os.ReadFile("/etc/os-release") // a machine without it is not a Debian
	_, err := exec.LookPath("apt-get")
	return machine{debian: isDebian(string(release)), root: os.Geteuid() == 0, aptGet: err == nil}
}

// isDebian checks an os-release file.
func isDebian(release string) bool {
	for line := range strings.Lines(release) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name != "ID" && name != "ID_LIKE" {
			continue
		}
		for _, id := range strings.Fields(strings.Trim(value, `"'`)) {
			if id == "debian" || id == "ubuntu" {
				return true
			}
		}
	}
	return false
}

// ErrPackagesMissing says that the machine lacks something that the user must install.
var ErrPackagesMissing = errors.New("the machine lacks what the lab needs")

// decide returns the packages to install, or the error to show, for what is missing on this machine.
func decide(missing []need, m machine) (install []string, err error) {
	if len(missing) == 0 {
		return nil, nil
	}
	var whats, packages []string
	for _, n := range missing {
		whats = append(whats, n.what)
		packages = append(packages, n.debian)
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	if m.debian && m.root && m.aptGet {
		return packages, nil
	}
	failure := fmt.Errorf("%w: %s", ErrPackagesMissing, strings.Join(whats, "; "))
	if m.debian {
		command := "apt-get install -y --no-install-recommends " + strings.Join(packages, " ")
		if !m.root {
			command = "sudo " + command
		}
		return nil, fmt.Errorf("%w\ninstall it: %s", failure, command)
	}
	return nil, fmt.Errorf("%w\ninstall it with your system's package manager; Debian's packages are: %s", failure,
		strings.Join(packages, " "))
}

// EnsurePackages installs missing Debian packages if it may: as root, on Debian and its derivatives. It installs
// nothing else, and removes nothing. Otherwise its error wraps ErrPackagesMissing and names the command to run. If
// nothing is missing, it costs only a few file lookups.
func EnsurePackages(ctx context.Context, config PackagesConfig) error {
	install, err := decide(lacking(config), thisMachine())
	if err != nil || len(install) == 0 {
		return err
	}
	if config.Progress != nil {
		config.Progress(Event{Stage: StagePackages, Text: "installing Debian packages: " + strings.Join(install, " ")})
	}
	apt := apt{log: config.Log, run: runApt}
	if err := apt.install(ctx, install); err != nil {
		return err
	}
	if left := lacking(config); len(left) > 0 {
		return fmt.Errorf("%w: apt-get installed %s without an error, but there is still no %s (see %s)",
			ErrPackagesMissing, strings.Join(install, " "), left[0].what, config.Log)
	}
	return nil
}

func lacking(config PackagesConfig) []need {
	return slices.DeleteFunc(needs(config.Real, config.Unprivileged, config.Supply), func(n need) bool { return n.present() })
}

// aptTimeout ends an apt-get that hangs in a download. The lab's packages are 60 MB at most.
const aptTimeout = 10 * time.Minute

// apt runs apt-get.
type apt struct {
	log string
	// run runs a command and returns all that it printed.
	run func(ctx context.Context, args []string) ([]byte, error)
}

// staleLists matches apt-get's messages about package lists that are missing or outdated.
var staleLists = regexp.MustCompile(
	`Unable to locate package|has no installation candidate|404 +Not Found|Unable to fetch some archives`)

// install installs packages. It updates the package lists, which is the slow part, only if they turn out to be missing
// or outdated.
func (a apt) install(ctx context.Context, packages []string) error {
	args := append([]string{"install", "-y", "--no-install-recommends", "--no-remove"}, packages...)
	out, err := a.call(ctx, args)
	if err != nil && staleLists.Match(out) {
		if out, err = a.call(ctx, []string{"update"}); err == nil {
			out, err = a.call(ctx, args)
		}
	}
	if err == nil {
		return nil
	}
	last := tail{max: failureLines}
	for line := range strings.Lines(string(out)) {
		last.add(strings.TrimRight(line, "\n"))
	}
	return fmt.Errorf("apt-get install %s: %w\n%s\nall of its output is in %s",
		strings.Join(packages, " "), err, last.String(),
		a.log)
}

func (a apt) call(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, aptTimeout, fmt.Errorf("not done after %s", aptTimeout))
	defer cancel()
	out, err := a.run(ctx, append([]string{"-o", "DPkg::Lock::Timeout=120"}, args...))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if logErr := a.record(args, out); logErr != nil {
		err = errors.Join(err, fmt.Errorf("log of apt-get: %w", logErr))
	}
	return out, err
}

func (a apt) record(args []string, out []byte) error {
	if a.log == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.log), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(a.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "$ apt-get %s\n%s\n", strings.Join(args, " "), bytes.TrimRight(out, "\n"))
	return errors.Join(err, f.Close())
}

// runApt runs apt-get without questions. After an interrupt apt-get finishes its current step.
func runApt(ctx context.Context, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.CombinedOutput()
}
