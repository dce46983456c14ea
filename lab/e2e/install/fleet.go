package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var fleetScenarios = []kit.Scenario{{
	Name: "fleet-upgrade", Lab: fleetLab(), Run: fleetUpgrade,
	Pages: []kit.Reading{upgradeJoin, upgradeAsked, upgradeOver, upgradeStopped, upgradeFloor, upgradeByHand},
	Doc: "The hubs of three pools, three nodes each, are upgraded from the cloud, one after another. " +
		"A node that is cut off is passed over and catches up. With the next release a hub does not start on one node: that " +
		"node is back on the former one, no other node gets it, and the cloud says why. What nobody has signed is refused, and " +
		"a release that somebody brings by hand is taken. No Pod restarts, and no node is NotReady.",
}}

func fleetLab() lab.Config {
	c := kit.Joining(lab.Config{Pools: 3, Nodes: 3, Timing: lab.Quick}.AsInstalled(), 0)
	c.Releases = true
	c.ChartValues = []string{"hub.image.pullPolicy=Never"}
	return c
}

// What docs/upgrades.md shows, and when: the nodes join, the upgrade is asked for, it is over, and a node is to go back further.
var (
	upgradeJoin  = kit.Reading{Page: "docs/upgrades.md", Only: []string{"yurthub join"}}
	upgradeAsked = kit.Reading{
		Page: "docs/upgrades.md",
		Only: []string{
			"kubectl apply -f - <<END\napiVersion: apps.openyurt.io/v1alpha1\nkind: PoolSettings\nmetadata: {name: hubs}",
		},
		Instead: []string{
			"v0.3.0", lab.ReleaseWell,
			`{days: [Tuesday, Wednesday], start: "02:00", duration: 3h, timeZone: Europe/Berlin}`,
			`{start: "00:00", duration: 24h}`,
		},
	}
	upgradeOver = kit.Reading{
		Page: "docs/upgrades.md", Only: []string{"kubectl wait", "kubectl get poolsettings"},
		Notes: []kit.Note{{Begins: "kubectl get poolsettings", Prints: upgradedAll}},
	}
	upgradeStopped = kit.Reading{
		Page: "docs/upgrades.md", Only: []string{"kubectl get pods"}, Notes: []kit.Note{{Prints: "yurthub-upgrade-" + faulty}},
	}
	upgradeFloor  = kit.Reading{Page: "docs/upgrades.md", Only: []string{"echo"}}
	upgradeByHand = kit.Reading{
		Page: "docs/upgrades.md", Only: []string{"chmod", "./yurthub"},
		Instead: []string{"v0.3.0", lab.ReleaseFaulty, "linux-amd64", "linux-" + goruntime.GOARCH},
	}
)

// upgradedAll is what the PoolSettings then says of its hubs, besides how many there are.
const upgradedAll = "hubs run the version that is set for them"

// Nodes that are special: the WAN link of one is cut, and on one the next release does not start.
const cutOff, faulty = "p3-n3", "p1-n2"

// fleet is a cluster whose hubs are upgraded by a reader of our pages.
type fleet struct {
	*kit.Reader
	nodes []*installed
}

func fleetUpgrade(t *kit.T) {
	f := &fleet{Reader: t.NewReader()}
	f.join()
	pods := t.DeployWeb()
	began := time.Now()

	t.Say("cutting the WAN link of %s, silently", cutOff)
	t.Cut(cutOff)
	t.Node(cutOff).Delegated(began)
	f.Read(upgradeAsked)
	took := t.Eventually(8*time.Minute, "all hubs but that one are upgraded", func() error {
		return f.says("Waiting", cutOff+" is cut off", 8)
	})
	t.Figure("fleet_upgrade_of_8_s", took.Seconds())
	f.runs(lab.ReleaseWell, func(name string) bool { return name != cutOff })
	t.Heal(cutOff)
	took = t.Eventually(3*time.Minute, "it has caught up", func() error { return f.says("UpToDate", upgradedAll, 9) })
	t.Figure("fleet_catch_up_s", took.Seconds())
	f.runs(lab.ReleaseWell, func(string) bool { return true })
	f.Read(upgradeOver)
	f.oneAtATime(began)

	t.Say("the next release does not start on %s", faulty)
	f.node(faulty).mustSh("touch " + lab.FaultFile)
	asked := time.Now()
	f.want(lab.ReleaseFaulty)
	took = t.Eventually(4*time.Minute, "the rollout stops, and says why", func() error {
		return f.says("Stopped", faulty+" went back: it ends by itself again and again", -1)
	})
	t.Figure("fleet_stop_s", took.Seconds())
	t.Eventually(30*time.Second, faulty+" is on the former release, and well", func() error {
		return f.version(faulty, lab.ReleaseWell)
	})
	f.Eventually(30*time.Second, "check finds nothing wrong on "+faulty, func() error {
		said := f.node(faulty).mustSh(f.node(faulty).hub + " check --joined || echo exit status $?")
		if strings.Contains(said, "exit status") {
			return errors.New(said)
		}
		return nil
	})
	f.stays()
	f.eventSays()
	f.Read(upgradeStopped)
	f.unsigned(faulty)
	f.ReadBy(upgradeFloor, f.node(faulty).mustSh)
	if floor := f.node(faulty).mustSh("cat /etc/yurthub/floor"); floor != "v0.2.0\n" {
		t.Fail("the floor of %s is %q", faulty, floor)
	}
	f.byHand(f.node(faulty))
	for _, n := range f.nodes {
		t.NeverNotReady(began, n.name)
	}
	t.Must(t.Seen.Untouched(pods, began))
	t.Figure("fleet_all_s", time.Since(asked).Seconds())
}

// join makes all nodes what they are after `yurthub join` with a key of releases.
func (f *fleet) join() {
	key, err := f.Lab.ReleaseKey()
	f.Must(err)
	start := time.Now()
	for p := 1; p <= f.Config.Pools; p++ {
		for i := 1; i <= f.Config.Nodes; i++ {
			n := straightNode(f.T, fmt.Sprintf("p%d-n%d", p, i))
			public := filepath.Join(n.dir, "release.pub")
			f.Must(os.WriteFile(public, key, 0o600))
			join := upgradeJoin
			join.Instead = []string{
				"yurthub join", fmt.Sprintf("%[1]s join --binary=%[1]s", n.hub), "POOL", fmt.Sprintf("p%d", p),
				"release.pub", public,
			}
			f.ReadBy(join, func(command string) string {
				said := n.mustSh(command)
				f.Say("%s", strings.TrimSpace(said))
				return said
			})
			n.adopt()
			f.nodes = append(f.nodes, n)
		}
	}
	for _, n := range f.nodes {
		n.beats("kubelet goes through the hub")
	}
	f.Eventually(60*time.Second, "all nodes say that they take upgrades", func() error {
		for _, n := range f.nodes {
			if is, err := f.program(n.name); err != nil || !is.Upgradable {
				return errors.Join(err, fmt.Errorf("%s says %+v", n.name, is))
			}
		}
		return nil
	})
	f.Figure("fleet_join_s", time.Since(start).Seconds())
}

func (f *fleet) node(name string) *installed {
	return f.nodes[slices.IndexFunc(f.nodes, func(n *installed) bool { return n.name == name })]
}

// want sets the version that all pools are to have.
func (f *fleet) want(version string) {
	f.Say("the PoolSettings says %s", version)
	content := fmt.Sprintf(`{"apiVersion":%q,"kind":"PoolSettings","metadata":{"name":"hubs"},`+
		`"spec":{"nodepoolSelector":{},"upgrade":{"version":%q}}}`, lab.PoolSettings.GroupVersion(), version)
	_, err := f.Cloud.Objects.Resource(lab.PoolSettings).Patch(f.Ctx, "hubs", types.ApplyPatchType, []byte(content),
		metav1.PatchOptions{FieldManager: "somebody", Force: ptr.To(true)})
	f.Must(err)
}

// says fails unless the PoolSettings says this of its hubs, with so many upgraded; a negative number means any.
func (f *fleet) says(reason, text string, upgraded int) error {
	o, err := f.Cloud.Objects.Resource(lab.PoolSettings).Get(f.Ctx, "hubs", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s := &v1alpha1.PoolSettings{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s); err != nil {
		return err
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) || c.ObservedGeneration != s.Generation ||
		upgraded >= 0 && s.Status.Upgrade.UpgradedNodes != int32(upgraded) {
		return fmt.Errorf("it says %+v, %+v", c, s.Status.Upgrade)
	}
	return nil
}

// program returns what a node's hub says of its program.
func (f *fleet) program(node string) (edge.HubProgram, error) {
	n, err := f.Cloud.CoreV1().Nodes().Get(f.Ctx, node, metav1.GetOptions{})
	if err != nil {
		return edge.HubProgram{}, err
	}
	is, _ := edge.ParseHubProgram(n.Annotations[edge.AnnotationProgram])
	return is, nil
}

// version fails unless a node's hub is of a version, by its own word in the cloud and by the program in its place.
func (f *fleet) version(node, want string) error {
	is, err := f.program(node)
	if err != nil {
		return err
	}
	printed := f.node(node).mustSh(f.node(node).hub + " --version")
	if is.Version != want || !strings.HasPrefix(printed, "yurthub "+want+" ") {
		return fmt.Errorf("%s says %+v, and its program %s", node, is, printed)
	}
	return nil
}

// runs expects which nodes are of a version.
func (f *fleet) runs(version string, want func(node string) bool) {
	for _, n := range f.nodes {
		if err := f.version(n.name, version); (err == nil) != want(n.name) {
			f.Fail("%s is of %s: %t, want %t (%w)", n.name, version, err == nil, want(n.name), err)
		}
	}
}

// oneAtATime expects that no two hubs of a pool were started within the time that one needs to be judged.
func (f *fleet) oneAtATime(since time.Time) {
	for p := 1; p <= f.Config.Pools; p++ {
		var starts []time.Time
		for _, n := range f.nodes {
			if !strings.HasPrefix(n.name, fmt.Sprintf("p%d-", p)) {
				continue
			}
			stamp := n.mustSh("stat -c %Y " + n.hub) // when it was delivered
			var seconds int64
			if _, err := fmt.Sscan(stamp, &seconds); err != nil {
				f.Fail("the program of %s is of %s: %w", n.name, stamp, err)
			}
			starts = append(starts, time.Unix(seconds, 0))
		}
		slices.SortFunc(starts, time.Time.Compare)
		for i := range starts {
			if starts[i].Before(since.Add(-time.Second)) || i > 0 && starts[i].Sub(starts[i-1]) < 5*time.Second {
				f.Fail("hubs of p%d were upgraded at %v", p, starts)
			}
		}
	}
}

// stays expects that no further node is given the version from now on.
func (f *fleet) stays() {
	before := map[string]edge.HubProgram{}
	for _, n := range f.nodes {
		is, err := f.program(n.name)
		f.Must(err)
		before[n.name] = is
		if is.Version == lab.ReleaseFaulty && strings.HasPrefix(n.name, "p1-") {
			continue // it came before, and is well with it
		}
		if is.Version != lab.ReleaseWell {
			f.Fail("%s is %+v", n.name, is)
		}
	}
	if before[faulty].Version != lab.ReleaseWell {
		f.Fail("%s is %+v", faulty, before[faulty])
	}
	f.Hold(20*time.Second, "another node would have its turn by then")
	for _, n := range f.nodes {
		if is, err := f.program(n.name); err != nil || is != before[n.name] {
			f.Fail("%s was %+v, and is %+v (%w)", n.name, before[n.name], is, err)
		}
	}
}

// eventSays expects an Event about the stop.
func (f *fleet) eventSays() {
	f.Eventually(10*time.Second, "an Event says so", func() error {
		events, err := f.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(f.Ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=PoolSettings,reason=HubsStopped",
		})
		if err == nil && (len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, faulty)) {
			err = fmt.Errorf("there is none among %d", len(events.Items))
		}
		return err
	})
}

// byHand repairs a node and, from the files of the release's page, installs the release that the node has gone back from.
func (f *fleet) byHand(n *installed) {
	n.mustSh("rm " + lab.FaultFile)
	dir := filepath.Join(n.dir, "release")
	f.Must(os.Mkdir(dir, 0o700))
	f.Must(f.Lab.ReleaseFiles(lab.ReleaseFaulty, dir))
	f.ReadBy(upgradeByHand, func(command string) string { return n.lasts(3*time.Minute, "cd "+dir+"; "+command) })
	f.Eventually(30*time.Second, n.name+" is of the release that was brought by hand", func() error {
		return f.version(n.name, lab.ReleaseFaulty)
	})
}

// unsigned delivers an unsigned program to a node, as an attacker with the cloud's rights could.
func (f *fleet) unsigned(node string) {
	n := f.node(node)
	before := n.mustSh("sha256sum " + n.hub)
	said := n.mustSh(fmt.Sprintf(`mkdir -p %[1]s/fake
printf '%%s  yurthub-v200.0.0-linux-%[3]s\n' "$(sha256sum %[2]s | cut -d' ' -f1)" >%[1]s/fake/SHA256SUMS
echo MEUCIQDfake >%[1]s/fake/SHA256SUMS.sig
%[2]s upgrade deliver --id=fake --version=v200.0.0 --release=%[1]s/fake --message= 2>&1 && echo taken || true`, n.dir, n.hub,
		goruntime.GOARCH))
	if !strings.Contains(said, "no key that is trusted has signed it") || strings.Contains(said, "taken") {
		f.Fail("what nobody has signed is delivered, and it says:\n%s", said)
	}
	if now := n.mustSh("sha256sum " + n.hub); now != before {
		f.Fail("the program was %s, and is %s", before, now)
	}
}
