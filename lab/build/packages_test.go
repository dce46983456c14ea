package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDecide(t *testing.T) {
	all := needs(true, true, true)
	few := []need{
		{what: "iptables", debian: "iptables"}, {what: "nsenter", debian: "util-linux"},
		{what: "another", debian: "util-linux"},
	}
	for _, test := range []struct {
		name    string
		missing []need
		machine machine
		install string
		says    []string // the error; nil: none
	}{
		{"nothing missing", nil, machine{}, "", nil},
		{"root on Debian", few, machine{debian: true, root: true, aptGet: true}, "iptables util-linux", nil},
		{"root on Debian, everything", all, machine{debian: true, root: true, aptGet: true},
			"busybox-static gcc iptables libc6-dev libseccomp-dev pkg-config procps rpm systemd uidmap util-linux", nil},
		{"user on Debian", few, machine{debian: true, aptGet: true}, "",
			[]string{"nsenter", "\ninstall it: sudo apt-get install -y --no-install-recommends iptables util-linux"}},
		{"Debian without apt-get", few, machine{debian: true, root: true}, "",
			[]string{"\ninstall it: apt-get install"}},
		{"another system", few, machine{root: true, aptGet: true}, "",
			[]string{"your system's package manager", "iptables util-linux"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			install, err := decide(test.missing, test.machine)
			if got := strings.Join(install, " "); got != test.install {
				t.Errorf("install %q, want %q", got, test.install)
			}
			if (err != nil) != (test.says != nil) {
				t.Fatalf("error %v", err)
			}
			if err != nil && !errors.Is(err, ErrPackagesMissing) {
				t.Errorf("error %v is not ErrPackagesMissing", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	packages := func(containers, unprivileged, supply bool) string {
		var names []string
		for _, n := range needs(containers, unprivileged, supply) {
			names = append(names, n.debian)
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " ")
	}
	if got, want := packages(false, true, false), "iptables procps util-linux"; got != want {
		t.Errorf("hollow: %s, want %s", got, want)
	}
	if got := packages(true, true, false); !strings.Contains(got, "uidmap") {
		t.Errorf("real, unprivileged: %s", got)
	}
	if got := packages(true, false, false); !strings.Contains(got, "libseccomp-dev") || strings.Contains(got, "uidmap") {
		t.Errorf("real: %s", got)
	}
	if got := packages(true, false, true); !strings.Contains(got, "rpm") {
		t.Errorf("a release's packages: %s", got)
	}
}

func TestIsDebian(t *testing.T) {
	for release, want := range map[string]bool{
		"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n": true,
		"ID=ubuntu\nID_LIKE=debian\n":                                 true,
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n":                   true,
		"ID='raspbian'\nID_LIKE='debian'":                             true,
		"ID=fedora\n":                                                 false,
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n":              false,
		"NAME=debian\n":                                               false,
		"":                                                            false,
	} {
		if got := isDebian(release); got != want {
			t.Errorf("isDebian(%q) = %v", release, got)
		}
	}
}

func TestAptUpdatesListsOnlyWhenNeeded(t *testing.T) {
	failed := errors.New("exit status 100")
	type answer struct {
		out string
		err error
	}
	for _, test := range []struct {
		name    string
		answers []answer
		calls   []string
		fails   bool
	}{
		{"good lists", []answer{{"ok", nil}}, []string{"install"}, false},
		{"no lists", []answer{{"E: Unable to locate package gcc", failed}, {"", nil}, {"", nil}},
			[]string{"install", "update", "install"}, false},
		{"old lists", []answer{{"Err:1 404  Not Found [IP: 127.0.0.1 80]", failed}, {"", nil}, {"", nil}},
			[]string{"install", "update", "install"}, false},
		{"no network", []answer{{"E: Unable to locate package gcc", failed}, {"Could not resolve", failed}},
			[]string{"install", "update"}, true},
		{"no such package",
			[]answer{{"E: Unable to locate package x", failed}, {"", nil}, {"E: Unable to locate package x", failed}},
			[]string{"install", "update", "install"}, true},
		{"it would remove something", []answer{{"E: Packages need to be removed but remove is disabled.", failed}},
			[]string{"install"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var calls []string
			a := apt{log: filepath.Join(t.TempDir(), "logs", "apt.log")}
			a.run = func(_ context.Context, args []string) ([]byte, error) {
				if len(calls) == len(test.answers) {
					t.Fatalf("apt-get %v after %v", args, calls)
				}
				next := test.answers[len(calls)]
				calls = append(calls, args[2])
				if args[2] == "install" && !slices.Contains(args, "--no-remove") {
					t.Errorf("apt-get %v may remove packages", args)
				}
				return []byte(next.out), next.err
			}
			err := a.install(t.Context(), []string{"gcc"})
			if (err != nil) != test.fails || !slices.Equal(calls, test.calls) {
				t.Errorf("install = %v after %v, want an error: %v, after %v", err, calls, test.fails, test.calls)
			}
			last := test.answers[len(calls)-1].out
			if test.fails && (!errors.Is(err, failed) || !strings.Contains(err.Error(), last)) {
				t.Errorf("error %v does not tell what apt-get said", err)
			}
			log, err := os.ReadFile(a.log)
			if err != nil || strings.Count(string(log), "$ apt-get ") != len(test.calls) {
				t.Errorf("log %q, %v", log, err)
			}
		})
	}
}
