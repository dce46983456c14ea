package build

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/lab/build/artifact"
)

// These constants pin what is not in the lab's go.mod: a module's version, and the hash of its content as `go mod download`
// reports it. The modules' own go.sum pins everything that they need.
const (
	containerdVersion = "v2.4.2"
	containerdSum     = "h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw="

	runcVersion = "v1.5.2"
	runcSum     = "h1:eUUowc2WJCnFYzI87C1WqRcu356Dk/wsoi90y+2wEfE="

	cniVersion = "v1.9.1"
	cniSum     = "h1:8oU6WsIsU3bpnNZuvHp74a6cE1MJwbj2P7s4/yTUNlA="

	corednsVersion = "v1.15.0"
	corednsSum     = "h1:OBT+OEyHVdUiVxPhrNlC5XZVq3RkSxzQXfZQ76gm5ck="

	helmVersion = "v4.3.1"
	helmSum     = "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g="

	flannelVersion = "v0.28.10"
	flannelSum     = "h1:jt+uW6XVV01MBb3YFahG7Ue9UE3W6zlNlJMf3JtdcXI="

	caddyVersion = "v2.11.9"
	caddySum     = "h1:bhZtcRKQOq0fuLvEgCdPYvUxXyGn9kzjG4lh2332DTE="

	// The same version as in the product's go.mod, whose parser the tests of dashboards and alerts use: 3.13.0.
	prometheusVersion = "v0.313.0"
	prometheusSum     = "h1:DH5Rcybaem9nuKaFYtY+Kmogmp/NiNPpS9WBIRlSy6E="

	registryVersion = "v3.1.2"
	registrySum     = "h1:/Bv2YIqqSR00HiO49FT93hovy6r9IlrzwUDsJjCN5qg="

	cosignVersion = "v3.1.3"
	cosignSum     = "h1:001JQRI/PJ/5T+g/kJ1KTvKFbb322+fomc+pHDZ/6sg="

	krewVersion = "v0.4.3"
	krewSum     = "h1:nvV4ifUM+wuy8ITy32FAib240lXSbMeHOxizqVy6+U0="

	openYurtVersion = "v1.7.0"
	openYurtSum     = "h1:yx49z7WPxEBQHbBdBDpJlmlsEJu3wfepG3O2ZM1MpZ4="
)

// Modules in the lab's go.mod whose versions the plan must know.
const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
	kubectlModule    = "k8s.io/kubectl" // in the older kubectl's go.mod
)

// Modules of ours, as directories below the product's module: the API's types; the lab, which pins Kubernetes' programs; and
// the older kubectl.
const (
	apisDir  = "apis"
	labDir   = "lab"
	olderDir = "lab/kubectlolder"
)

// tags are used for everything in our modules, so that the Go build cache is shared with `go test`.
const tags = "grpcnotrace"

// layout changes when the cache's content changes for a reason that no other part of a key shows.
const layout = "1"

// stage is one call of `go build`.
type stage struct {
	Name Stage
	// Title tells people what is built.
	Title string
	origin
	// Dir is the directory of a nested module of ours, below the directory of the product's.
	Dir string `json:",omitempty"`
	// Commit is a commit of our repository that is built in place of our present source; empty means none.
	Commit   string `json:",omitempty"`
	Packages []string
	// Output is a directory below the set's, with a slash at the end, or the file of a single package.
	Output  string
	Tags    string
	LDFlags []string
	CGO     bool
	Race    bool
	// Apart compiles in a Go build cache of its own, which is removed afterwards. It is not part of what is made.
	Apart bool `json:"-"`
	// Replace has new content for files of the module, by their paths in it. It is part of the key.
	Replace map[string]string `json:",omitempty"`
}

// origin names a module that is built separately, with its own go.mod and go.sum; empty means one of ours.
type origin struct{ Module, Version, Sum string }

// files returns what the stage makes, relative to its set's directory.
func (s stage) files() []string {
	if !strings.HasSuffix(s.Output, "/") {
		return []string{s.Output}
	}
	files := make([]string, len(s.Packages))
	for i, p := range s.Packages {
		files[i] = s.Output + path.Base(p)
	}
	return files
}

// args returns the arguments of `go build` for output below dir.
func (s stage) args(dir string) []string {
	args := append([]string{"build", "-v"}, s.flags()...)
	return append(append(args, "-ldflags="+strings.Join(s.LDFlags, " "), "-o", dir+"/"+s.Output), s.Packages...)
}

// listArgs returns the arguments of `go list` that print one line for each package: its path if `go build` would compile or
// link it, and nothing if it is up to date.
func (s stage) listArgs() []string {
	args := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, s.flags()...)
	return append(args, s.Packages...)
}

func (s stage) flags() []string {
	flags := []string{"-mod=readonly", "-buildvcs=false"}
	if s.Tags != "" {
		flags = append(flags, "-tags="+s.Tags)
	}
	if s.Race {
		flags = append(flags, "-race")
	}
	if len(s.Replace) > 0 {
		flags = append(flags, "-trimpath") // each copy has a new path, which must not matter
	}
	return flags
}

// set is what one key caches.
type set struct {
	name   string
	stages []stage
	// source stands for content that the stages themselves do not pin.
	source string
	// gives are the files that the lab runs; nil means all.
	gives []string
}

// given returns the files of the set that the lab runs.
func (s set) given() []string {
	if s.gives != nil {
		return s.gives
	}
	return s.files()
}

func (s set) files() []string {
	var files []string
	for _, st := range s.stages {
		files = append(files, st.files()...)
	}
	return files
}

// key stands for everything that decides a set's files.
func (s set) key(goEnv map[string]string) (string, error) {
	stages, err := json.Marshal(s.stages)
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", s.name, err)
	}
	env, err := json.Marshal(goEnv) // sorted by name
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", s.name, err)
	}
	return artifact.Key(layout, s.name, s.source, string(stages), string(env)), nil
}

// versions are the versions of the modules in the lab's go.mod.
type versions struct {
	kubernetes, etcd string
	// cloud and node are the versions of Kubernetes that the lab's cloud and nodes run.
	cloud, node string
	// older is the older kubectl's version; empty means that it is not wanted.
	older string
}

// inputs are the inputs of a plan.
type inputs struct {
	versions versions
	// module is the path of the product's module.
	module string
	// goMod stands for the content of the lab's go.mod, tree for all source files of our programs, olderTree for those of the
	// older kubectl.
	goMod, tree, olderTree string
	real, race             bool
	coredns                bool
	helm                   bool
	kubectlOlder           bool
	openYurt               bool
	flannel                bool
	caddy                  bool
	prometheus             bool
	supply                 bool
	releases               bool
	former                 string
	// others are other versions of Kubernetes, of which the lab takes programs in place of ours.
	others []other
	only   string
}

// plan lists the needed sets.
func plan(in inputs) []set {
	type candidate struct {
		set
		wanted bool
	}
	all := []candidate{{kubernetes(in), true}}
	for _, o := range in.others { // after ours, which they stand in for
		all = append(all, candidate{otherKubernetes(o), true})
	}
	all = append(all, []candidate{
		{containers(), in.real},
		{coreDNS(), in.coredns},
		{helm(), in.helm},
		{kubectlOlder(in), in.kubectlOlder},
		{openYurt(), in.openYurt},
		{flannel(), in.flannel},
		{caddy(), in.caddy},
		{prometheus(), in.prometheus},
		{supply(), in.supply},
		{former(in), in.former != ""},
		{releases(in), in.releases},
		{programs(in), true},
	}...)
	var sets []set
	for _, s := range all {
		if s.name == in.only || (in.only == "" && s.wanted) {
			sets = append(sets, s.set)
		}
	}
	return sets
}

var kubernetesPrograms = []string{
	"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl", "kubeadm",
}

func kubernetes(in inputs) set {
	return set{
		name:   SetKubernetes,
		source: in.goMod,
		stages: []stage{{
			Name:     StageKubernetes,
			Title:    "Kubernetes " + in.versions.kubernetes,
			Dir:      labDir,
			Packages: prefix(kubernetesModule+"/cmd/", kubernetesPrograms...),
			Output:   "bin/",
			Tags:     tags,
			LDFlags:  VersionFlags(in.versions.kubernetes),
		}, {
			Name:     StageEtcd,
			Title:    "etcd " + in.versions.etcd,
			Dir:      labDir,
			Packages: []string{etcdModule},
			Output:   "bin/etcd",
			Tags:     tags,
			LDFlags:  strip(),
		}},
	}
}

func programs(in inputs) set {
	ours := in.module + "/"
	version := VersionFlags(in.versions.kubernetes)
	return set{
		name:   SetPrograms,
		source: in.tree,
		stages: []stage{{
			Name:     StagePrograms,
			Title:    "our own programs",
			Packages: prefix(ours+"cmd/", "yurthub", "yurt-coordinator", "coordinator-controller", "kubectl-yurt"),
			Output:   "bin/",
			Tags:     tags,
			LDFlags:  version,
			CGO:      in.race, // the race detector needs it
			Race:     in.race,
		}, {
			Name:     StagePrograms,
			Title:    "hollow kubelet and pause",
			Dir:      labDir,
			Packages: prefix(ours+labDir+"/", "hollow", "pause"),
			Output:   "bin/",
			Tags:     tags,
			LDFlags:  version,
		}},
	}
}

// Releases of yurthub that are built in addition, for upgrades: ReleaseWell works, and ReleaseFaulty does not serve on a node
// with the file that cmd/yurthub names.
const (
	ReleaseWell   = "v100.1.0"
	ReleaseFaulty = "v100.2.0"
)

// releases returns the next releases of our own yurthub.
func releases(in inputs) set {
	release := func(version, file, moreTags string) stage {
		return stage{
			Name:     StagePrograms,
			Title:    "yurthub " + version,
			Packages: []string{in.module + "/cmd/yurthub"},
			Output:   file,
			Tags:     tags + moreTags,
			LDFlags:  append(VersionFlags(in.versions.kubernetes), ReleaseFlags(in.module, version, "")...),
		}
	}
	return set{
		name:   SetReleases,
		source: in.tree,
		stages: []stage{
			release(ReleaseWell, "bin/yurthub-well", ""), release(ReleaseFaulty, "bin/yurthub-faulty", ",faulty"),
		},
	}
}

func containers() set {
	const (
		containerd = "github.com/containerd/containerd/v2"
		runc       = "github.com/opencontainers/runc"
		cni        = "github.com/containernetworking/plugins"
	)
	return set{
		name: SetContainers,
		stages: []stage{{
			Name:     StageContainerd,
			Title:    "containerd " + containerdVersion,
			origin:   origin{containerd, containerdVersion, containerdSum},
			Packages: prefix(containerd+"/cmd/", "containerd", "containerd-shim-runc-v2", "ctr"),
			Output:   "bin/",
			LDFlags:  append(strip(), "-X "+containerd+"/version.Version="+containerdVersion),
		}, {
			Name:     StageRunc,
			Title:    "runc " + runcVersion,
			origin:   origin{runc, runcVersion, runcSum},
			Packages: []string{runc},
			Output:   "bin/runc",
			Tags:     "seccomp",
			LDFlags:  strip(),
			CGO:      true, // it enters namespaces in C, before the Go runtime starts threads
		}, {
			Name:   StageCNI,
			Title:  "CNI plugins " + cniVersion,
			origin: origin{cni, cniVersion, cniSum},
			Packages: prefix(cni+"/plugins/", "main/bridge", "main/loopback", "ipam/host-local",
				"meta/portmap"),
			Output:  "cni/",
			LDFlags: append(strip(), "-X "+cni+"/pkg/utils/buildversion.BuildVersion="+cniVersion),
		}},
	}
}

// coreDNS returns a CoreDNS with only the plugins that the lab's Corefile and kubeadm's use. The plugins for the DNS of public
// clouds bring their vendors' libraries, four fifths of everything to compile.
func coreDNS() set {
	const coredns = "github.com/coredns/coredns"
	var plugins strings.Builder
	plugins.WriteString("package plugin\n\nimport (\n")
	for _, p := range prefix(coredns+"/plugin/", "bind", "cache", "errors", "forward", "health", "kubernetes", "loadbalance",
		"loop", "metrics", "ready", "reload") {
		fmt.Fprintf(&plugins, "\t_ %q\n", p)
	}
	plugins.WriteString(")\n")
	return one(SetCoreDNS, stage{
		Name:     StageCoreDNS,
		Title:    "CoreDNS " + corednsVersion,
		origin:   origin{coredns, corednsVersion, corednsSum},
		Packages: []string{coredns},
		Output:   "bin/coredns",
		Tags:     tags,
		LDFlags:  strip(),
		Replace:  map[string]string{"core/plugin/zplugin.go": plugins.String()},
	})
}

func helm() set {
	const helm = "helm.sh/helm/v4"
	return one(SetHelm, stage{
		Name:     StageHelm,
		Title:    "Helm " + helmVersion,
		origin:   origin{helm, helmVersion, helmSum},
		Packages: []string{helm + "/cmd/helm"},
		Output:   "bin/helm",
		LDFlags:  append(strip(), "-X "+helm+"/internal/version.version="+helmVersion),
	})
}

// one returns a set that one stage builds.
func one(name string, s stage) set { return set{name: name, stages: []stage{s}} }

// openYurt returns OpenYurt's manager in the cloud.
func openYurt() set {
	const openyurt = "github.com/openyurtio/openyurt"
	return one(SetOpenYurt, stage{
		Name:     StageOpenYurt,
		Title:    "OpenYurt " + openYurtVersion,
		origin:   origin{openyurt, openYurtVersion, openYurtSum},
		Packages: []string{openyurt + "/cmd/yurt-manager"},
		Output:   "bin/yurt-manager",
		LDFlags:  strip(),
	})
}

// flannel returns flannel's daemon, without the backend of one cloud and the backend that is written in C.
func flannel() set {
	const flannel = "github.com/flannel-io/flannel"
	return one(SetFlannel, stage{
		Name:     StageFlannel,
		Title:    "flannel " + flannelVersion,
		origin:   origin{flannel, flannelVersion, flannelSum},
		Packages: []string{flannel},
		Output:   "bin/flanneld",
		LDFlags:  append(strip(), "-X "+flannel+"/pkg/version.Version="+flannelVersion),
		// It brings a cloud's library that the module proxy does not serve.
		// Another backend is in C.
		Replace: map[string]string{
			"pkg/backend/tencentvpc/tencentvpc.go": "package tencentvpc\n",
			"pkg/backend/udp/udp_amd64.go":         "package udp\n",
			"pkg/backend/udp/udp_network_amd64.go": "package udp\n",
		},
	})
}

// caddy returns Caddy with only the modules that a reverse proxy needs.
func caddy() set {
	const caddy = "github.com/caddyserver/caddy/v2"
	var modules strings.Builder
	modules.WriteString("package standard\n\nimport (\n")
	for _, m := range prefix(caddy+"/modules/", "caddyhttp", "caddyhttp/reverseproxy", "caddytls") {
		fmt.Fprintf(&modules, "\t_ %q\n", m)
	}
	modules.WriteString(")\n")
	return one(SetCaddy, stage{
		Name:     StageCaddy,
		Title:    "Caddy " + caddyVersion,
		origin:   origin{caddy, caddyVersion, caddySum},
		Packages: []string{caddy + "/cmd/caddy"},
		Output:   "bin/caddy",
		LDFlags:  append(strip(), "-X "+caddy+".CustomVersion="+caddyVersion),
		Replace:  map[string]string{"modules/standard/imports.go": modules.String()},
	})
}

// prometheus returns Prometheus and promtool. Kubernetes' is its only service discovery, because the clients of public clouds
// would be most of what there is to compile. It has no web pages, because nobody looks at them.
func prometheus() set {
	const prometheus = "github.com/prometheus/prometheus"
	return one(SetPrometheus, stage{
		Name:     StagePrometheus,
		Title:    "Prometheus " + prometheusVersion,
		origin:   origin{prometheus, prometheusVersion, prometheusSum},
		Packages: prefix(prometheus+"/cmd/", "prometheus", "promtool"),
		Output:   "bin/",
		Tags:     tags + ",remove_all_sd,enable_kubernetes_sd",
		LDFlags:  append(strip(), "-X github.com/prometheus/common/version.Version="+prometheusVersion),
	})
}

// supply returns the programs that a release passes between its maker and its user: the CNCF's registry, with a directory as
// its store; cosign, without the clouds' stores of keys and identities; and krew.
func supply() set {
	const (
		registry = "github.com/distribution/distribution/v3"
		cosign   = "github.com/sigstore/cosign/v3"
		krew     = "sigs.k8s.io/krew"
	)
	return set{
		name: SetSupply,
		stages: []stage{{
			Name:     StageSupply,
			Title:    "registry " + registryVersion,
			origin:   origin{registry, registryVersion, registrySum},
			Packages: []string{registry + "/cmd/registry"},
			Output:   "bin/registry",
			LDFlags:  append(strip(), "-X "+registry+"/version.version="+registryVersion),
			Replace: map[string]string{"cmd/registry/main.go": `package main

import (
	"os"

	"` + registry + `/registry"
	_ "` + registry + `/registry/storage/driver/filesystem"
)

func main() {
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
`},
		}, {
			Name:     StageSupply,
			Title:    "cosign " + cosignVersion,
			origin:   origin{cosign, cosignVersion, cosignSum},
			Packages: []string{cosign + "/cmd/cosign"},
			Output:   "bin/cosign",
			LDFlags:  append(strip(), "-X sigs.k8s.io/release-utils/version.gitVersion="+cosignVersion),
			Replace: map[string]string{
				"cmd/cosign/main.go": `package main

import (
	"os"

	"` + cosign + `/cmd/cosign/cli"
)

func main() {
	if cli.New().Execute() != nil {
		os.Exit(1)
	}
}
`,
				"pkg/providers/all/all.go": "package all\n",
			},
		}, {
			Name:     StageSupply,
			Title:    "krew " + krewVersion,
			origin:   origin{krew, krewVersion, krewSum},
			Packages: []string{krew + "/cmd/krew"},
			Output:   "bin/krew",
			LDFlags:  append(strip(), "-X "+krew+"/internal/version.gitTag="+krewVersion),
		}},
	}
}

// kubectlOlder returns a kubectl of the minor version before ours.
func kubectlOlder(in inputs) set {
	return set{
		name:   SetOlder,
		source: in.olderTree,
		stages: []stage{{
			Name:     StageOlder,
			Title:    "kubectl " + in.versions.older,
			Dir:      olderDir,
			Packages: []string{"."},
			Output:   "bin/kubectl-older",
			Tags:     tags,
			LDFlags:  VersionFlags(in.versions.older),
		}},
	}
}

func prefix(with string, names ...string) []string {
	names = slices.Clone(names)
	for i := range names {
		names[i] = with + names[i]
	}
	return names
}

// strip drops symbols and debugging data. They are half of a binary, and take some of its memory. It keeps the build ID, by
// which Go knows what is up to date.
func strip() []string { return []string{"-s", "-w"} }

// VersionFlags returns linker flags that make a program built from Kubernetes' modules report Kubernetes' version. Without them
// clients see v0.0.0.
func VersionFlags(version string) []string {
	flags := strip()
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+p+".gitVersion="+version,
			"-X "+p+".gitMajor="+major,
			"-X "+p+".gitMinor="+minor,
			"-X "+p+".gitTreeState=clean")
	}
	return flags
}

// ReleaseFlags returns linker flags that make a program of ours report its release and its commit. If one is empty, the program
// reports what Go recorded at the build.
func ReleaseFlags(module, version, commit string) []string {
	var flags []string
	for name, value := range map[string]string{"version": version, "commit": commit} {
		if value != "" {
			flags = append(flags, "-X "+module+"/internal/version."+name+"="+value)
		}
	}
	slices.Sort(flags)
	return flags
}

// The cost of a build, in seconds of one core, as measured on two cores: Kubernetes and etcd from scratch (2600 packages, 210
// s), and only linking (7 programs, 9 s). containerd, runc and CNI from scratch (868 packages) took 52 s, which is less per
// package.
const (
	secondsPerPackage = 0.16
	secondsPerProgram = 2.5
)

// estimate returns how long it takes to compile stale packages and to link programs on so many cores.
func estimate(stale, programs, cores int) time.Duration {
	work := secondsPerPackage*float64(stale) + secondsPerProgram*float64(programs)
	return time.Duration(work / float64(max(cores, 1)) * float64(time.Second))
}

// about says a duration in words for a person who waits.
func about(d time.Duration) string {
	switch minutes := int(math.Round(d.Minutes())); {
	case d < time.Minute:
		return "less than a minute"
	case minutes == 1:
		return "about a minute"
	default:
		return fmt.Sprintf("about %d minutes", minutes)
	}
}

// cores returns how many cores the Go tool will use.
func cores() int { return runtime.GOMAXPROCS(0) }
