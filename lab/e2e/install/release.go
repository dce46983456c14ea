package install

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pages"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var releaseScenarios = []kit.Scenario{{
	Name: "release", Tier: kit.Field, Lab: releaseLab(), Run: releaseUsed,
	Pages: []kit.Reading{makeRelease, verifyRelease, krewInstalls, imagesOwn, pushOwn, chartInstalls, packageInstalls},
	Doc: "`make release` pushes a release to a registry. cosign, openssl and krew take it as the page says, and refuse what is " +
		"changed, unsigned or signed by another key. Helm installs the chart from a mirror, and the pool gets a coordinator " +
		"by digest. A node gets the hub from the deb, another one from the rpm; `yurthub join` refuses " +
		"what the signed list does not have. The packages can't be removed " +
		"before `yurthub reset`. No node turns NotReady.",
}}

var (
	chartInstalls = kit.Reading{
		Page: "docs/releases.md", Only: []string{"helm install"}, Notes: []kit.Note{{Within: 9 * time.Minute}},
	}
	packageInstalls = kit.Reading{Page: "docs/releases.md", Only: []string{"dpkg", "rpm", "yurthub join"}}
)

func releaseLab() lab.Config {
	c := kit.Joining(kit.OnePool.AsInstalled(), 0)
	c.Supply = true
	return c
}

func releaseUsed(t *kit.T) {
	dir, err := os.MkdirTemp("", "release-")
	t.Must(err)
	defer func() { _ = os.RemoveAll(dir) }() // at worst it stays in the temporary directory
	s := newSupply(t, dir)
	t.Say("making %s", s.version)
	s.make()
	s.verify()
	s.forged()
	s.krewInstalls()
	s.pushOwn()

	t.Pool.Settled(time.Minute)
	began := time.Now()
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	cloud, err := url.Parse(access.Host)
	t.Must(err)
	bins, err := t.Lab.Programs()
	t.Must(err)
	inCloud, err := t.Lab.Inside(t.Ctx, "cloud", bins.Registry)
	t.Must(err)
	mirror := s.serveImages(inCloud, cloud.Hostname()+":5000")
	t.Must(t.Lab.PlainRegistry(mirror))

	s.chart(mirror + released)
	t.Pool.Settled(3 * time.Minute)
	s.plugin()

	coordinator := t.Pool.CoordinatorNode()
	others := slices.DeleteFunc(t.Pool.Nodes(), func(name string) bool { return name == coordinator })
	for _, p := range []*fromPackage{
		{supply: s, kind: "deb", install: "dpkg -i", remove: "dpkg --remove yurthub"},
		{supply: s, kind: "rpm", install: "rpm -i", remove: "rpm -e --dbpath=/var/lib/rpm yurthub"},
	} {
		p.installed = straightNode(t, others[0])
		others = others[1:]
		p.joins()
	}
	t.NeverNotReady(began, t.Pool.Nodes()...)
}

// throughMirror is a Helm for this lab only: its registry speaks HTTP, and kubectl has applied the same objects before.
const throughMirror = `#!/bin/bash
exec %s "$@" --plain-http --take-ownership --force-conflicts --wait --timeout=8m %s
`

// chart replaces what the lab has installed by the release, with Helm and the page's command. The chart and the images come
// from the mirror.
func (s *supply) chart(mirror string) {
	bins, err := s.Lab.Programs()
	s.Must(err)
	values, err := s.Lab.ChartValues()
	s.Must(err)
	var flags []string
	for _, v := range values {
		if !strings.Contains(v, "image.") { // the release names its images itself
			flags = append(flags, "--set-string='"+v+"'")
		}
	}
	r := s.NewReader()
	script := fmt.Sprintf(throughMirror, bins.Helm, strings.Join(flags, " "))
	s.Must(os.WriteFile(filepath.Join(r.Tools, "helm"), []byte(script), 0o700))
	r.Words = []string{"MIRROR", mirror, "0.2.0", strings.TrimPrefix(s.version, "v")}
	start := time.Now()
	r.Read(chartInstalls)
	s.Figure("release_helm_s", time.Since(start).Seconds())

	digests := s.digests()
	s.Eventually(5*time.Minute, "the pool's coordinator is the release's", func() error {
		pods, err := s.Pool.CoordinatorsIn(0)
		if err != nil || len(pods) != 1 {
			return errors.Join(err, fmt.Errorf("there are %d Pods", len(pods)))
		}
		pod := &pods[0]
		image := pod.Spec.Containers[0].Image
		name, digest, _ := strings.Cut(strings.TrimPrefix(image, mirror+"/"), "@sha256:")
		genuine := strings.HasPrefix(name, "yurt-coordinator:"+s.version+"-k") && digest != "" && digests[name] == digest
		if !genuine || !kit.PodReady(pod) {
			return fmt.Errorf("it runs %s, and is Ready: %t; the list has %s", image, kit.PodReady(pod), digests[name])
		}
		return s.Cloud.Condition("p1", "Ready", "True", "")
	})
	s.Figure("release_coordinator_s", time.Since(start).Seconds())
	d, err := s.Cloud.AppsV1().Deployments(edge.NamespaceSystem).Get(s.Ctx, string(lab.CoordinatorController),
		metav1.GetOptions{})
	s.Must(err)
	name := "coordinator-controller:" + s.version
	want := mirror + "/" + name + "@sha256:" + digests[name]
	if image := d.Spec.Template.Spec.Containers[0].Image; image != want || !rolledOut(d) {
		s.Fail("coordinator-controller runs %s, want %s; %+v", image, want, d.Status)
	}
}

// plugin uses the plugin that krew has installed to ask the cloud.
func (s *supply) plugin() {
	r := s.NewReader()
	r.Tools = filepath.Join(s.krew, "bin")
	if said := r.Run("kubectl-yurt --version && kubectl-yurt status"); !strings.Contains(said, s.version+" ") ||
		!strings.Contains(said, "p1") {
		s.Fail("the plugin says %s", said)
	}
}

// fromPackage is a node that gets its hub from a package.
type fromPackage struct {
	*supply
	*installed
	kind, install, remove string
}

// What a machine of its own kind has already: root's directories that can be written to, and the package manager's files.
const (
	ownUsr = `mkdir -p /run/usr/new /run/usr/work
mount -t overlay -o lowerdir=/usr,upperdir=/run/usr/new,workdir=/run/usr/work overlay /usr
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/rpm
touch /var/lib/dpkg/status
`
	rootsPath = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
)

// page returns the commands of docs/releases.md that begin so, and the script that types them on the node.
func (p *fromPackage) page(begins string, instead ...string) (script string, steps []pages.Step) {
	all, err := pages.StepsOf(p.installed.Repository(), packageInstalls.Page)
	p.installed.Must(err)
	words := strings.NewReplacer(slices.Concat(instead, []string{
		"0.2.0", strings.TrimPrefix(p.version, "v"), "arm64", goruntime.GOARCH, "POOL", "p1",
		// Debian's rpm keeps its database in a home directory, and knows of no package with the /bin/sh that ours asks for.
		"rpm -i ", "rpm -i --dbpath=/var/lib/rpm --nodeps ",
	})...)
	script = rootsPath + "cd " + p.installed.dir + "\n"
	for _, s := range all {
		if strings.HasPrefix(s.Text, begins) && packageInstalls.Covers(s) {
			script += words.Replace(s.Text) + "\n"
			steps = append(steps, s)
		}
	}
	return script, steps
}

// types runs them.
func (p *fromPackage) types(begins string) {
	script, steps := p.page(begins)
	printed := p.mustSh(script)
	if strings.Contains(printed, "error:") { // rpm's exit status says nothing of its scripts
		p.installed.Fail("%s: %s", script, printed)
	}
	p.installed.Say("%s%s", strings.TrimPrefix(script, rootsPath), strings.TrimSpace(printed))
	for _, s := range steps {
		p.installed.HasRun(s)
	}
}

// joins installs the package on the node, joins it with the signed list, and takes both away again.
func (p *fromPackage) joins() {
	t, n := p.installed.T, p.installed
	n.machine(ownUsr)
	t.Must(p.download(n.dir))
	p.types(p.install)
	n.hub = "/usr/bin/yurthub"
	if said := n.mustSh(n.hub + " --version"); !strings.HasPrefix(said, "yurthub "+p.version+" ") {
		t.Fail("the package has %s", said)
	}
	before := n.still()
	p.refused(before)

	start := time.Now()
	p.types("yurthub join")
	t.Figure("release_join_"+p.kind+"_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub")
	n.adopt()
	n.undisturbed("joined", before)
	t.Say("check says:\n%s", n.mustSh(n.hub+" check --joined"))
	running := n.machine("pgrep -x yurthub")
	said := n.mustSh(rootsPath + "if " + p.remove + " 2>&1; then echo it goes; fi")
	if !strings.Contains(said, "run yurthub reset first") || strings.Contains(said, "it goes") {
		t.Fail("the package of a hub that kubelet uses is removed: %s", said)
	}
	if now := n.machine("pgrep -x yurthub"); now != running {
		t.Fail("the refused removal has started the hub anew: %s, before %s", now, running)
	}
	n.mustSh(n.hub + " check --joined")
	n.reset(before)
	t.Say("%s\n%s", p.remove, n.mustSh(rootsPath+p.remove))
	if left := n.mustSh("ls /usr/bin | grep yurthub || true"); left != "" {
		t.Fail("%s leaves %s", p.remove, left)
	}
}

// download copies what a node needs of the releases' page, and what somebody would have it take instead.
func (p *fromPackage) download(to string) error {
	base := fmt.Sprintf("yurthub-%s-linux-%s.", p.version, goruntime.GOARCH)
	for _, name := range []string{base + p.kind, "SHA256SUMS", "SHA256SUMS.sig", "release.pub", "../other.pub", "../changed"} {
		content, err := os.ReadFile(filepath.Join(p.supply.dir, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), content, 0o644); err != nil {
			return err
		}
	}
	signature, err := os.ReadFile(filepath.Join(to, "SHA256SUMS.sig"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "changed.sig"), signature, 0o600)
}

// refused expects that join takes nothing that is not the release's, and changes nothing.
func (p *fromPackage) refused(before stillness) {
	n := p.installed
	n.machine("cp /usr/bin/yurthub /usr/bin/other && printf x >>/usr/bin/other")
	list := "--release-list SHA256SUMS"
	faults := []struct{ what, old, new, want string }{
		{"a changed program", "--binary /usr/bin/yurthub", "--binary /usr/bin/other", "none of the release's files"},
		{"a changed list", list, "--release-list changed", "no key that is trusted has signed it"},
		{"a list by another key", "--release-key release.pub", "--release-key other.pub", "no key that is trusted has signed it"},
	}
	for _, f := range faults {
		script, _ := p.page("yurthub join", f.old, f.new)
		said := n.mustSh("{ " + script + "} 2>&1 && echo it joins || true")
		if !strings.Contains(said, f.want) || strings.Contains(said, "it joins") {
			n.Fail("%s: join says %s; want %q", f.what, said, f.want)
		}
		n.Say("%s is refused: %s", f.what, strings.TrimSpace(said))
		n.undisturbed("refused", before)
		if now := n.files(); now != before.files {
			n.Fail("%s: not all is as before. Before:\n%s\nafter:\n%s", f.what, before.files, now)
		}
	}
	n.machine("rm /usr/bin/other")
}
