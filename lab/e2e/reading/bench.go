package reading

import (
	"time"

	"yurtcoordinator/lab/e2e/kit"
)

var benchScenarios = []kit.Scenario{
	typed("pages-bench", "The benchmarks, typed as their page has them, each for as short as it can be: what is seen is that "+
		"they measure and print, not what.", benchmarks),
	typed("pages-wan-cost", "What a day costs on the WAN, measured for less than a minute by each of the commands of its page.",
		wanCost),
	typed("make-bench", "All benchmarks by one command, as their page has it, with those of one package and with four pools.",
		makeBench),
}

// short are the flags of a short wan-day, whose figures mean nothing.
const short = " --idle=20s --quiet=0 --busy=20s --others=1"

var benchmarks = kit.Reading{
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
