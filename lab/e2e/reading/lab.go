package reading

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// aside is the lab of a scenario whose page starts labs of its own. It is as small as possible.
var aside = lab.Config{Pools: 1, Nodes: 1, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoCoordinator: true}

var labScenarios = []kit.Scenario{{
	Name: "pages-lab", Tier: kit.Field, Run: pagesLab, Pages: append(labPages, builds, firstLab), Lab: aside,
	Doc: "The lab's own page and the README's first minute, typed as they stand there, with a lab beside the scenario's own: " +
		"it is started, a link is cut, shaped and healed, a machine and the cloud's programs are killed and started, and " +
		"nothing is left. In a clone, `make build` makes all programs, and `make lab` a lab that Ctrl-C ends.",
}, typed("pages-versions", "The lab's page about other versions of Kubernetes, typed as it stands there: a lab of another "+
	"version that Ctrl-C ends, and two scenarios with two pairs of versions. Of the command that runs all pairs, one scenario "+
	"with one pair.", otherVersions)}

var labPages = []kit.Reading{
	{
		Page: "docs/lab.md",
		But:  []string{"yurtlab down", "yurtlab up --kubernetes", "yurtlab run", "yurtlab skew"},
		Notes: []kit.Note{
			{Begins: "yurtlab up --detach", Within: 5 * time.Minute},
			{Begins: "yurtlab status  ", Prints: `p1-n2.*NoSchedule`, Soon: true},
			{Begins: "yurtlab kubectl -- describe node p1-n2", Prints: "CloudLinkDown +True", Soon: true},
			{Begins: "yurtlab node", Within: 3 * time.Minute},
			{Begins: "yurtlab cloud", Within: 3 * time.Minute},
		},
	},
	{Page: "README.md", Only: []string{"bin/yurtlab "}, Instead: []string{"bin/yurtlab", "yurtlab"}},
	{Page: "docs/lab.md", Only: []string{"yurtlab down"}, Notes: []kit.Note{{Begins: "yurtlab down", Within: 2 * time.Minute}}},
}

// Who has just cloned the repository builds, or starts a lab.
var (
	builds   = kit.Reading{Page: "docs/kubectl-yurt.md", Only: []string{"make build"}, Notes: []kit.Note{{Within: time.Hour}}}
	firstLab = kit.Reading{
		Page: "README.md", Only: []string{"make lab"},
		Notes: []kit.Note{{
			Within: time.Hour, GoesOn: true, Prints: "(?s)p1-n1.*Ctrl-C ends the lab", Interrupted: 2 * time.Minute,
		}},
	}
)

var otherVersions = kit.Reading{
	Page: "docs/lab.md", Only: []string{"yurtlab up --kubernetes", "yurtlab skew"},
	Notes: []kit.Note{
		{
			Begins: "yurtlab up", Within: time.Hour,
			GoesOn: true, Prints: "(?s)p1-n1.*Ctrl-C ends the lab", Interrupted: 2 * time.Minute,
		},
		{Begins: "yurtlab skew --cloud", Prints: `(?m)^1\.34 +1\.33 +passed.*\n1\.37 +1\.36 +passed`, Within: 2 * time.Hour},
		{
			Begins: "yurtlab skew", Instead: []string{"skew", "skew --cloud 1.34 --kubelet 1.33 --scenarios kill-one"},
			Prints: `(?m)^1\.34 +1\.33 +passed`, Within: time.Hour,
		},
	},
}

// trial is the clone's version.
const trial = "v0.9.9"

func pagesLab(t *kit.T) {
	r := t.NewReader()
	name, gone := t.LabBeside("page")
	clone := filepath.Join(r.Dir, "clone")
	// It is typed on the host, in a clone of the repository, with the caches that builds have left.
	r.Dir, r.Environ = t.Repository(), map[string]string{"YURTLAB_NAME": name, "MAKEFLAGS": "", "MAKELEVEL": ""}
	r.Enter = kit.OnHost
	for _, x := range labPages {
		r.Read(x)
	}
	t.Must(gone())
	r.Run(t.CloneTo(clone, trial))
	r.Dir = clone
	r.Read(builds)
	r.Read(firstLab)
	t.Must(gone())
	for _, program := range []string{"yurthub", "yurt-coordinator", "coordinator-controller", "kubectl-yurt", "yurtlab"} {
		if said := r.Run("bin/" + program + " --version"); !strings.HasPrefix(said, program+" "+trial+" ") {
			t.Fail("bin/%s says %s", program, said)
		}
	}
}

// typed returns the scenario of a page whose commands, typed in the repository, start labs and end them.
func typed(name, doc string, page kit.Reading) kit.Scenario {
	return kit.Scenario{Name: name, Tier: kit.Field, Doc: doc, Lab: aside, Pages: []kit.Reading{page}, Run: func(t *kit.T) {
		r := t.NewReader()
		beside, gone := t.LabBeside("page")
		profiles := filepath.Join(r.Dir, "profiles")
		t.Must(os.Mkdir(profiles, 0o700))
		r.Dir, r.Enter = t.Repository(), kit.OnHost
		r.Environ = map[string]string{"YURTLAB_NAME": beside, "PROFILES": profiles, "MAKEFLAGS": "", "MAKELEVEL": ""}
		r.Read(page)
		t.Must(gone())
	}}
}
