// Package yurtcoordinator holds the law of imports: which of our packages may know which, and who may use the heavy
// libraries. The law is data; each line has its reason.
package yurtcoordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module begins the import paths of all our packages: a module in a folder has the folder's path.
const module = "yurtcoordinator/"

// law says what a package, and everything below it that has no line of its own, may import of ours besides its own
// sub-packages. The longest match counts.
var law = []struct {
	pkg    string
	may    []string
	reason string
}{
	{"apis", []string{"apis/apps/v1beta2"},
		"an API is its types: anyone can import it without the rest. The older version of a kind has the newer one's fields"},
	{"internal/edge", nil, "the vocabulary is at the bottom"},
	{"internal/run", nil, "life cycle knows nothing of what lives"},
	{"internal/ends", nil, "what a machine gives a program does not depend on what that does"},
	{"internal/live", nil, "a value with a signal knows nothing of its meaning"},
	{"internal/flagfile", nil, "settings are any program's"},
	{"internal/logs", nil, "how a program logs does not depend on what it does"},
	{"internal/version", nil, "which version a program is of does not depend on what it does"},
	{"internal/signed", nil, "whether a release is ours is decided by its bytes and a key alone"},
	{"internal/doubt", nil, "doubt is pure: what is doubted, and when it is offered, it is told"},
	{"internal/stream", []string{"internal/edge"}, "a stream does not know who sends or keeps it"},
	{"internal/stream/remote", []string{"internal/edge", "internal/ends", "internal/stream"},
		"who reads over HTTP does not know who keeps it"},
	{"internal/stream/edit", nil, "who reads and changes fields of a message does not know what they mean"},
	{"internal/replica",
		[]string{
			"internal/edge", "internal/ends", "internal/live", "internal/replica/viewtest", "internal/stream",
			"internal/stream/edit", "internal/stream/streamtest",
		},
		"a replica does not know what feeds it, nor which side it is on"},
	{"internal/replica/viewtest", []string{"internal/edge", "internal/replica", "internal/stream"},
		"what is true of every view is true of no particular one"},

	{"internal/hub/link", []string{"internal/ends", "internal/live"},
		"link health is pure but for its probe, which it is given"},
	{"internal/hub/upstream",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/identity", "internal/hub/link", "internal/live", "internal/run",
		},
		"a connection, and the way that it takes, do not know who uses it"},
	{"internal/hub/front",
		[]string{
			"internal/conns", "internal/edge", "internal/ends", "internal/hub/cache", "internal/hub/identity",
			"internal/hub/link", "internal/hub/recall", "internal/hub/upstream", "internal/live", "internal/run",
		},
		"who answers a request, and what a hub says of itself, does not depend on what the answerers are made of"},
	{"internal/hub/relay",
		[]string{
			"internal/conns", "internal/edge", "internal/ends", "internal/hub/front", "internal/hub/link",
			"internal/hub/upstream", "internal/live", "internal/run",
		},
		"who lends a line does not know what goes over it"},
	{"internal/hub/lead", []string{"internal/edge", "internal/ends", "internal/hub/link", "internal/live", "internal/run"},
		"election, and what a leader reports, do not know what else a leader does"},
	{"internal/hub/coordinators",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/lead", "internal/hub/link", "internal/hub/settings",
			"internal/live", "internal/lookout", "internal/run",
		},
		"which coordinator is home depends on who is reached and who leads there, not on what is done there"},
	{"internal/hub/heartbeat",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/lead", "internal/hub/link", "internal/live",
		},
		"heartbeats do not know how requests arrive"},
	{"internal/hub/share",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/link", "internal/live", "internal/run", "internal/stream",
			"internal/stream/edit",
		},
		"what is brought to a coordinator, or taken in the cloud's place, does not depend on who follows or shows it"},
	{"internal/hub/cache",
		[]string{
			"internal/doubt", "internal/edge", "internal/ends", "internal/hub/lead", "internal/hub/link", "internal/live",
			"internal/replica", "internal/run", "internal/store", "internal/stream", "internal/stream/remote",
		},
		"what is followed does not depend on how requests arrive, nor on what is seen of it"},
	{"internal/hub/recall", []string{"internal/edge", "internal/ends", "internal/run", "internal/stream"},
		"what the cloud said last, and how long it holds, does not depend on what is followed"},
	{"internal/hub/views",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/cache", "internal/hub/front", "internal/hub/identity",
			"internal/hub/link", "internal/live", "internal/replica", "internal/replica/viewtest", "internal/run",
			"internal/stream", "internal/stream/edit",
		},
		"what programs see does not depend on where it comes from"},
	{"internal/hub/settings", []string{"apis/hub/v1alpha1", "internal/edge", "internal/ends", "internal/live", "internal/run"},
		"what a pool says does not depend on what a hub makes of it"},
	{"internal/hub/config",
		[]string{
			"apis/hub/v1alpha1", "internal/edge", "internal/hub/front", "internal/hub/identity", "internal/hub/link",
			"internal/hub/settings", "internal/hub/upstream", "internal/logs",
		},
		"what a hub is told to do is said in the words of who does it, and opens and starts nothing"},
	{"internal/hub/identity", []string{"internal/edge", "internal/ends", "internal/live", "internal/run"},
		"a certificate does not know what it is for"},
	{"internal/hub/bypass", []string{"internal/conns"}, "what the kernel says of programs does not depend on who asks"},
	{"internal/hub/hubtest", []string{"internal/edge"}, "what stands in for servers does not know who comes"},
	{"internal/hub/member",
		[]string{
			"apis/hub/v1alpha1", "internal/edge", "internal/ends", "internal/hub/cache", "internal/hub/coordinators",
			"internal/hub/heartbeat", "internal/hub/identity", "internal/hub/lead", "internal/hub/link", "internal/hub/share",
			"internal/hub/upstream", "internal/hub/views", "internal/live", "internal/run", "internal/stream",
		},
		"who puts a hub's part in its pool together knows all that it is made of, and nothing of how requests arrive"},
	{"internal/hub/check",
		[]string{
			"internal/edge", "internal/hub/bypass", "internal/hub/config", "internal/hub/front", "internal/hub/identity",
			"internal/hub/upstream",
		},
		"who looks for what is wrong knows a hub's settings and status, and its way to the cloud; it does not trust the rest"},
	{"internal/hub/join", []string{"deploy/node", "internal/edge", "internal/hub/bypass", "internal/run", "internal/signed"},
		"who installs or upgrades yurthub asks the installed program, and not the code that it is made of"},
	{"internal/store", []string{"internal/edge", "internal/stream", "internal/stream/streamtest"},
		"a disk does not know what it is for"},
	{"internal/lookout", []string{"internal/edge", "internal/ends"}, "who looks on a LAN does not know why"},
	{"internal/lookout/lookouttest", []string{"internal/edge"}, "what serves there does not know who looks"},
	{"internal/hub",
		[]string{
			"internal/edge", "internal/ends", "internal/hub/cache", "internal/hub/config", "internal/hub/front",
			"internal/hub/identity", "internal/hub/link", "internal/hub/member", "internal/hub/recall",
			"internal/hub/relay", "internal/hub/settings", "internal/hub/share", "internal/hub/upstream",
			"internal/hub/views", "internal/live", "internal/logs", "internal/run", "internal/store", "internal/stream",
			"internal/version", "internal/version/buildinfo",
		},
		"the wiring of the node's side; the pool's and the cloud's code stay out of every node"},

	{"internal/conns", nil, "a bound on connections does not know what comes over them"},
	{"internal/usage", nil, "figures of kubelets know no pool"},
	{"internal/pool/etcd", nil, "an etcd does not know what is stored in it"},
	{"internal/pool/exchange", []string{"internal/edge"},
		"a body and an answer do not know what is pushed"},
	{"internal/pool/state",
		[]string{
			"internal/edge", "internal/ends", "internal/live", "internal/pool/exchange", "internal/run", "internal/stream",
		},
		"what is told of a pool does not depend on who wrote it"},
	{"internal/pool/page", []string{"internal/conns", "internal/edge", "internal/ends"},
		"a page shows what it is given and what anybody may read"},
	{"internal/pool/access", []string{"internal/edge", "internal/ends", "internal/pool/exchange"},
		"who may do what does not depend on how it is done"},
	{"internal/pool/succession", []string{"internal/edge", "internal/ends", "internal/lookout", "internal/run"},
		"who takes a coordinator's place does not depend on what it serves"},
	{"internal/pool/limits", []string{"internal/conns", "internal/ends", "internal/pool/exchange"},
		"a bound on callers does not know what they do"},
	{"internal/pool/shareserver",
		[]string{
			"internal/doubt", "internal/edge", "internal/ends", "internal/pool/exchange", "internal/replica", "internal/stream",
			"internal/stream/edit",
		},
		"what is pushed does not depend on who leads, nor on who reads it: it is told, and asked"},
	{"internal/pool/apiserver", nil, "kube-apiserver is Kubernetes' own: what is ours is given to it"},
	{"internal/pool/pooltest", []string{"internal/edge", "internal/stream"},
		"the rooms' tests share it, so it knows no room"},
	{"internal/pool",
		[]string{
			"internal/conns", "internal/edge", "internal/ends", "internal/run", "internal/usage", "internal/version",
			"internal/version/buildinfo",
		},
		"wiring: a coordinator does not know hubs but by their requests"},
	{"internal/cloud/cloudtest", []string{"apis"},
		"a real API server for tests knows our kinds, and no controller"},
	{"internal/cloud/certs", nil, "what to sign when does not depend on where it is kept"},
	{"internal/cloud",
		[]string{
			"apis", "apis/apps/v1alpha1", "apis/apps/v1beta1", "apis/apps/v1beta2", "apis/hub/v1alpha1", "internal/edge",
			"internal/ends", "internal/run",
			"internal/live", "internal/version", "internal/version/buildinfo",
		},
		"the cloud sees Leases, not hubs"},
	{"internal/cloud/fleet", []string{"internal/edge", "internal/ends"},
		"how the fleet is follows from what leaders report, and from nothing that the controllers do"},
	{"internal/plugin", []string{"apis/apps/v1alpha1", "apis/apps/v1beta2", "internal/edge", "internal/logs", "internal/version"},
		"an operator sees objects, and none of what wrote them"},
	{"internal/oci", nil, "an image is made of programs, whichever"},
	{"hack", []string{"internal/version"}, "scripts are given what they need"},
	{"hack/vuln", nil, "which vulnerabilities are known does not depend on what is released"},
	{"internal/release", []string{"internal/oci", "internal/signed", "internal/version"},
		"a release is made of programs and files, whatever is in them"},
	{"hack/release", []string{"internal/oci", "internal/release", "internal/signed"}, "the command line of a release"},

	{"internal/sim/model", nil, "a model of what is not ours knows nothing of ours"},
	{"internal/sim/stock", []string{"internal/sim/model"}, "nor does what runs of Kubernetes besides it"},
	{"internal/sim/network", nil, "a network knows nothing of what it carries"},
	{"internal/sim/history", nil, "what can happen is known without what it happens to"},
	{"internal/sim/world", []string{
		"deploy", "internal/cloud", "internal/edge", "internal/ends", "internal/hub", "internal/hub/config", "internal/hub/front",
		"internal/sim/pki", "internal/pool", "internal/pool/apiserver", "internal/pool/pooltest", "internal/run",
		"internal/sim/history",
		"internal/sim/model", "internal/sim/network", "internal/sim/stock",
	}, "a world has the product's programs, by their own constructors, and what is not ours as models"},
	{"internal/sim/cmd", nil, "who explores runs a test"},

	{"lab/line", nil, "a model knows no frames"},
	{"lab/balancer", nil, "a balancer without servers knows no lab"},
	{"lab/connect", nil, "a company's proxy knows no lab"},
	{"lab/converter", nil, "a webhook knows no lab"},
	{"lab/onecpu", nil, "processors know no frames"},
	{"lab/prowl", nil, "a stranger knows nothing of ours"},
	{"lab/wire", []string{"lab/line", "lab/onecpu"}, "cables know no Kubernetes"},
	{"lab/machine", nil, "machines know no Kubernetes"},
	{"lab/build", []string{"internal/edge", "internal/version"},
		"building knows names of packages, not the packages; it counts as all do, and names a commit's version as a build does"},
	{"lab/image",
		[]string{"lab/build/artifact", "internal/oci", "internal/signed", "internal/version"},
		"images share the cache of built programs"},
	{"internal/sim/pki", nil, "the keys of a cloud that is made up are those of any program"},
	{"lab/hollow", []string{"internal/flagfile"}, "a kubelet knows no hub"},
	{"lab/load", []string{"internal/edge"}, "a load is made by a plain client"},
	{"lab/bench",
		[]string{
			"internal/edge", "lab", "lab/load", "lab/machine", "internal/sim/pki", "internal/run",
		},
		"a load comes from outside, as any client's; the plain proxy beside the hub needs a certificate"},
	{"lab/bench/cloudscale",
		[]string{
			"apis/apps/v1alpha1", "apis/apps/v1beta2", "internal/edge", "lab/bench", "internal/sim/pki", "internal/run",
		},
		"a load comes from outside; what it makes is an API"},
	{"lab/bench/wanday",
		[]string{
			"internal/edge", "lab", "lab/bench", "lab/load", "lab/wire", "internal/run",
		},
		"what a node costs is seen from outside: at its cable, and where its hub says it"},
	{"lab/yurtlab",
		[]string{
			"internal/edge", "lab", "lab/build", "lab/image", "lab/line",
			"lab/prowl", "lab/wire", "lab/balancer",
			"lab/connect", "lab/converter", "lab/bench", "lab/bench/cloudscale", "lab/bench/wanday",
			"lab/machine", "lab/e2e", "lab/e2e/kit", "internal/version",
		},
		"the command line offers the scenarios"},
	{"lab",
		[]string{
			"internal/edge", "internal/cloud/forwarding", "internal/run", "internal/signed", "internal/sim/pki", "deploy",
		},
		"the lab starts our programs as a user would: it does not link them; it names a release's files as a release does"},
	{"lab/e2e/watchcheck", nil, "a judge of watches knows none of our code"},
	{"lab/e2e/panels", nil, "what dashboards ask is data"},
	{"lab/e2e/machinery", nil, "checks of an API server know none of our code"},
	{"lab/e2e/kit", []string{
		"apis/apps/v1alpha1", "lab/e2e/watchcheck", "internal/edge", "lab", "lab/line", "lab/load",
		"lab/wire", "internal/pages",
	},
		"the kit knows no scenario, and runs what the pages show"},
	{"lab/e2e/links", []string{
		"lab/e2e/kit", "internal/edge", "lab", "lab/line",
		"lab/wire",
	},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/pool", []string{
		"lab/e2e/kit", "lab/e2e/machinery", "internal/edge", "lab", "lab/line", "lab/load",
		"lab/wire",
	},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/offline", []string{
		"lab/e2e/kit", "internal/edge", "lab", "lab/line", "lab/load", "lab/wire",
	},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/install", []string{
		"apis/apps/v1alpha1", "lab/e2e/kit", "internal/edge", "lab", "lab/connect", "lab/wire",
		"internal/pages", "internal/version",
	},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/cloud", []string{
		"apis/apps/v1alpha1", "apis/apps/v1beta1", "deploy", "lab/e2e/kit", "lab/e2e/panels", "lab/e2e/watchcheck",
		"internal/edge",
		"lab", "lab/load", "internal/sim/pki", "lab/wire", "internal/oci",
	},
		"a theme knows no other: what two need is in the kit; a release that is broken is an image of another program"},
	{"lab/e2e/ops", []string{
		"lab/e2e/kit", "internal/edge", "lab", "lab/balancer", "lab/converter", "lab/wire", "internal/pages",
	},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/reading", []string{"lab/e2e/kit", "internal/edge", "lab", "lab/wire"},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e/thief", []string{"lab/e2e/kit", "internal/edge", "lab", "lab/prowl", "lab/wire"},
		"a theme knows no other: what two need is in the kit"},
	{"lab/e2e", []string{"internal/pages"},
		"it joins the scenarios of the themes, which see what a user can see, and says which of them runs which page"},
	{"deploy", nil, "manifests are data"},
	{"internal/pages", nil, "pages know no programs: the programs' tests hold them to theirs"},

	{"cmd/yurthub",
		[]string{
			"internal/ends", "internal/hub", "internal/hub/check", "internal/hub/config", "internal/hub/join",
			"internal/hub/join",
			"internal/flagfile", "internal/logs", "internal/run", "internal/version",
		},
		"main parses and runs"},
	{"cmd/yurt-coordinator", []string{"internal/pool", "internal/flagfile", "internal/logs", "internal/version"},
		"main parses and runs"},
	{"cmd/coordinator-controller", []string{"internal/cloud", "internal/flagfile", "internal/logs", "internal/version"},
		"main parses and runs"},
	{"cmd/kubectl-yurt", []string{"internal/plugin"}, "main parses and runs"},
	{"lab/cmd/yurtlab", []string{"lab", "lab/yurtlab"}, "main parses and runs"},
}

// reserved says who alone may import a library, by prefix of its path.
var reserved = []struct {
	library string
	only    []string
	reason  string
}{
	{"k8s.io/kubernetes/", []string{"internal/pool", "lab/hollow", "internal/sim/stock"},
		"not a library: large, and without promises"},
	{"go.etcd.io/etcd/server/", []string{"internal/pool/etcd"}, "etcd lives in the coordinator only, in one room"},
	{"sigs.k8s.io/controller-runtime", []string{"internal/cloud", "lab"},
		"controllers run in the cloud only; a hub must stay small"},
	{"github.com/vishvananda/", []string{"lab/wire"}, "one place lays cables"},
	{"github.com/google/nftables", []string{"lab/wire"}, "one place cuts them"},
	{"sigs.k8s.io/metrics-server", []string{"internal/usage"}, "one place asks kubelets what they use"},
	{"go.etcd.io/bbolt", []string{"internal/store"}, "one place keeps the disk"},
	{"github.com/klauspost/compress", []string{"internal/store"}, "one place packs"},
	{"testing", []string{"internal/sim"}, "no test code in programs; the simulation is none"},
	{"k8s.io/client-go/kubernetes/fake", nil, "no fakes in programs"},
}

// rooms is how many packages there are below a folder, itself among them, and not those that have tests alone. A commit that
// raises a number names the package that the new one replaces, or says why none can go (docs/adr/0068-budget-of-rooms.md).
var rooms = []struct {
	below    string
	packages int
}{
	{"internal/hub", 20},
	{"internal/pool", 11},
	{"internal/cloud", 20},
}

// vague are verbs that name functions in at most three packages: a name says what is judged, told or taken, and grep finds it.
var vague = regexp.MustCompile(`(?m)^func (\([^)]*\) )?(judge|tell|look|take|ask)\(`)

func TestNamesSayWhatIsDone(t *testing.T) {
	const most = 3
	where := map[string]map[string]bool{}
	err := eachSource(func(p string) error {
		if strings.HasSuffix(p, "_test.go") || !within(p, "internal") && !within(p, "cmd") || within(p, "lab") ||
			within(p, "internal/sim") {
			return nil
		}
		content, err := os.ReadFile(p)
		for _, found := range vague.FindAllStringSubmatch(string(content), -1) {
			verb := found[2]
			if where[verb] == nil {
				where[verb] = map[string]bool{}
			}
			where[verb][filepath.Dir(p)] = true
		}
		return err
	})
	if err != nil || len(where) == 0 {
		t.Fatalf("%d verbs: %v", len(where), err)
	}
	for verb, all := range where {
		if len(all) > most {
			t.Errorf("%s names functions of more than %d packages: %q", verb, most, slices.Sorted(maps.Keys(all)))
		}
	}
}

type listed struct {
	ImportPath       string
	GoFiles, Imports []string
}

func TestBudgetOfRooms(t *testing.T) {
	all := packages(t)
	for _, r := range rooms {
		has := 0
		for _, p := range all {
			if within(strings.TrimPrefix(p.ImportPath, module), r.below) && len(p.GoFiles) > 0 {
				has++
			}
		}
		if has != r.packages {
			t.Errorf("%s has %d packages, and its budget is %d. If that is meant, write {%q, %d} in rooms of arch_test.go, and "+
				"say in the commit what a new package replaces (docs/adr/0068-budget-of-rooms.md)",
				r.below, has, r.packages, r.below, has)
		}
	}
}

func TestLawOfImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == p.ImportPath {
			continue // the root, which has no code
		}
		line := lineFor(name)
		if line < 0 {
			t.Errorf("%s: no line of the law covers this package", name)
			continue
		}
		for _, imported := range p.Imports {
			checkOurs(t, name, line, imported)
			checkReserved(t, name, imported)
		}
	}
}

func checkOurs(t *testing.T, name string, line int, imported string) {
	ours, found := strings.CutPrefix(imported, module)
	if !found {
		return
	}
	l := law[line]
	if within(ours, l.pkg) || slices.Contains(l.may, ours) {
		return
	}
	t.Errorf("%s imports %s: %s", name, ours, l.reason)
}

func checkReserved(t *testing.T, name, imported string) {
	for _, r := range reserved {
		if imported != r.library && !strings.HasPrefix(imported, r.library) {
			continue
		}
		if r.library == "testing" && imported != "testing" && imported != "testing/synctest" {
			continue
		}
		if slices.ContainsFunc(r.only, func(owner string) bool { return within(name, owner) }) || isTestSupport(name) {
			continue
		}
		t.Errorf("%s imports %s: %s", name, imported, r.reason)
	}
}

// isTestSupport: conformance suites and the like are packages of their own, named after what they test.
func isTestSupport(name string) bool { return strings.HasSuffix(name, "test") }

func within(name, parent string) bool { return name == parent || strings.HasPrefix(name, parent+"/") }

func lineFor(name string) int {
	best := -1
	for i, l := range law {
		if within(name, l.pkg) && (best < 0 || len(l.pkg) > len(law[best].pkg)) {
			best = i
		}
	}
	return best
}

// packages are those of all modules.
func packages(t *testing.T) []listed {
	t.Helper()
	var all []listed
	for _, dir := range modules {
		list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,GoFiles,Imports", "./...")
		list.Dir = dir
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", dir, err)
		}
		found := 0
		for d := json.NewDecoder(bytes.NewReader(out)); ; found++ {
			var p listed
			err := d.Decode(&p)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		if found < 5 {
			t.Fatalf("go list found %d packages in %s; something is wrong with this test", found, dir)
		}
	}
	return all
}

// TestEveryLineIsNeeded keeps the law from growing stale.
func TestEveryLineIsNeeded(t *testing.T) {
	all := packages(t)
	for _, l := range law {
		governs := func(p listed) bool { return within(strings.TrimPrefix(p.ImportPath, module), l.pkg) }
		if !slices.ContainsFunc(all, governs) {
			t.Errorf("the law speaks of %s, which does not exist", l.pkg)
		}
	}
}

// maxWiring bounds the lines of package hub. What can be done and tested without a hub belongs into a room of its own.
const maxWiring = 600

// TestTheHubIsWiring keeps the node's side a house of rooms.
func TestTheHubIsWiring(t *testing.T) {
	files, err := filepath.Glob("internal/hub/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(content), "\n")
	}
	if lines > maxWiring {
		t.Errorf("internal/hub has %d lines besides tests, want at most %d: which room is the newest of?", lines, maxWiring)
	}
}
