// Package version says to which of our releases a program belongs, and what it is made from.
//
// Kubernetes' own version variables (k8s.io/component-base/version) keep Kubernetes' values, because a coordinator contains a
// kube-apiserver, which tells its clients those values.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Next is the release that this source becomes. Until there is its tag, a program is of Next + "-dev".
const Next = "v0.2.0"

// What the linker is told, by -X: see the Makefile and build.ReleaseFlags. A build without has what Go knows of it.
var (
	version string
	commit  string
)

// Info is what a program is made from.
type Info struct {
	// Version of ours, as v0.2.0, or v0.2.0-dev.g0e928d5 between two releases.
	Version string `json:"version"`
	// Commit is the source's, in full; empty means that nobody knows.
	Commit string `json:"commit,omitempty"`
	// Kubernetes is the version of the Kubernetes that the program is made from, as v1.36.3; empty if it has none of it.
	Kubernetes string `json:"kubernetes,omitempty"`
	// GoVersion is the version of Go that made the program, and Platform is what it runs on, as linux/amd64.
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Get returns what this program is made from.
func Get() Info {
	info, _ := debug.ReadBuildInfo() // a program that is not built with modules knows less
	return of(version, commit, info)
}

// Line returns what a program of that name prints for --version: the second word is the version.
func (i Info) Line(program string) string {
	parts := []string{i.GoVersion, i.Platform}
	if i.Kubernetes != "" {
		parts = append(parts, "Kubernetes "+i.Kubernetes)
	}
	if i.Commit != "" {
		parts = append(parts, "commit "+i.Commit)
	}
	return fmt.Sprintf("%s %s (%s)", program, i.Version, strings.Join(parts, ", "))
}

// released matches the versions of tags, but not those that Go makes from a time and a commit.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// of returns what a program is made from, of what the linker was told and what Go knows; nil means that it knows nothing.
func of(told, commit string, info *debug.BuildInfo) Info {
	is := Info{Version: told, Commit: commit, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		info = &debug.BuildInfo{}
	}
	setting := func(key string) string {
		i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 {
			return ""
		}
		return info.Settings[i].Value
	}
	if is.Commit == "" {
		is.Commit = setting("vcs.revision")
	}
	if is.Version == "" && released.MatchString(info.Main.Version) {
		is.Version = info.Main.Version
	}
	if is.Version == "" {
		is.Version = Development(is.Commit, setting("vcs.modified") == "true")
	}
	is.Kubernetes = kubernetes(info.Deps)
	return is
}

// Development returns the version of a source between two releases: of a commit, or of a commit with modifications. An empty
// commit means that nobody knows it. The version is a valid tag of an image, and sorts before Next.
func Development(commit string, modified bool) string {
	v := Next + "-dev"
	if commit != "" {
		v += ".g" + commit[:min(7, len(commit))]
		if modified {
			v += ".dirty"
		}
	}
	return v
}

// kubernetes finds the version of Kubernetes among a program's modules: its own, or of a library, v0.36.3 of Kubernetes v1.36.3.
func kubernetes(deps []*debug.Module) string {
	for _, path := range []string{"k8s.io/kubernetes", "k8s.io/client-go", "k8s.io/apimachinery"} {
		for _, m := range deps {
			if m.Path != path {
				continue
			}
			if m.Replace != nil {
				m = m.Replace
			}
			if rest, library := strings.CutPrefix(m.Version, "v0."); library {
				return "v1." + rest
			}
			return m.Version
		}
	}
	return ""
}

// CoordinatorTag returns the tag of the image of coordinators of a release of ours, made from a Kubernetes: v0.2.0-k1.36.3.
func CoordinatorTag(release, kubernetes string) string {
	return release + kubernetesMark + strings.TrimPrefix(kubernetes, "v")
}

const kubernetesMark = "-k"
