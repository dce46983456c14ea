package reading

import (
	"os"
	"path/filepath"
	"time"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
)

var benchScenarios = []kit.Scenario{{
	Name: "pages-bench", Run: func(t *kit.T) { benches(t, benchPages) }, Pages: benchPages,
	Lab: lab.Config{Pools: 1, Nodes: 1, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoCoordinator: true},
	Doc: "The benchmarks, typed as their pages have them, each for as short as it can be: what is seen is that they measure " +
		"and print, not what.",
}, {
	Name: "pages-wan-cost", Run: func(t *kit.T) { benches(t, []kit.Reading{wanCost}) }, Pages: []kit.Reading{wanCost},
	Lab: lab.Config{Pools: 1, Nodes: 1, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoCoordinator: true},
	Doc: "What a day costs on the WAN, measured for less than a minute by each of the commands of its page.",
}, {
	Name: "make-bench", Run: func(t *kit.T) { benches(t, []kit.Reading{makeBench}) }, Pages: []kit.Reading{makeBench},
	Lab: lab.Config{Pools: 1, Nodes: 1, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoCoordinator: true},
	Doc: "All benchmarks by one command, as their page has it, with those of one package and with four pools.",
}}

// short is for wan-day: its figures say nothing then.
const short = " --idle=20s --quiet=0 --busy=20s --others=1"

var benchPages = []kit.Reading{{
	Page: "docs/benchmarks.md", Only: []string{"bin/yurtlab bench", "go test"},
	Notes: []kit.Note{
		{Begins: "bin/yurtlab bench", Prints: overBudget, Within: 20 * time.Minute},
		{Begins: "bin/yurtlab bench -o json", Prints: `(?m)^\{"bench":"hub","figures":\{"`, Within: 20 * time.Minute},
		{
			Begins: "bin/yurtlab bench --profile", Instead: []string{"DIR", "$PROFILES"},
			Prints: overBudget, Within: 20 * time.Minute,
			After: func(r *kit.Reader) {
				if kept := r.Run("ls $PROFILES"); kept == "" {
					r.Fail("there are no profiles")
				}
			},
		},
		{
			Begins:  "bin/yurtlab bench cloud-scale ",
			Instead: []string{"cloud-scale", "cloud-scale --pools=4 --nodes=4 --steady=5s"},
			Prints:  overBudget, Within: 10 * time.Minute,
		},
		{
			Begins: "bin/yurtlab bench cloud-scale --pools", Instead: []string{"400", "4", "20s", "5s"},
			Prints: overBudget, Within: 10 * time.Minute,
		},
		{
			Begins: "bin/yurtlab bench wan-day", Instead: []string{"wan-day", "wan-day --kubelet=hollow" + short},
			Prints: perDay, Within: 10 * time.Minute,
		},
		{
			Begins: "go test", Instead: []string{"-bench .", "-bench . -benchtime 1x"},
			Prints: `(?m)^Benchmark`, Within: 20 * time.Minute,
		},
	},
	Instead: []string{"bin/yurtlab", "yurtlab"},
},
}

var wanCost = kit.Reading{
	Page: "docs/wan-cost.md", Only: []string{"yurtlab bench"},
	Instead: []string{"wan-day", "wan-day" + short}, Notes: []kit.Note{{Prints: perDay, Within: 20 * time.Minute}},
}

var makeBench = kit.Reading{
	Page: "docs/benchmarks.md", Only: []string{"make bench"},
	Instead: []string{"make bench", "make bench UNIT=./internal/hub/front SCALE='--pools=4 --nodes=4 --steady=5s'"},
	Notes:   []kit.Note{{Prints: `(?ms)^Benchmark.*^\d+ over budget\..*^\d+ over budget\.`, Within: 40 * time.Minute}},
}

// What tables of benchmarks have.
const (
	overBudget = `(?m)^\d+ over budget\.`
	perDay     = `MB a day`
)

// benches types what readings say in the repository, with a lab beside the scenario's own.
func benches(t *kit.T, readings []kit.Reading) {
	r := t.NewReader()
	name, gone := t.LabBeside("bench")
	profiles := filepath.Join(r.Dir, "profiles")
	t.Must(os.Mkdir(profiles, 0o700))
	r.Dir, r.Enter = t.Repository(), kit.OnHost
	r.Environ = map[string]string{"YURTLAB_NAME": name, "PROFILES": profiles, "MAKEFLAGS": "", "MAKELEVEL": ""}
	for _, x := range readings {
		r.Read(x)
		t.Must(gone())
	}
}
