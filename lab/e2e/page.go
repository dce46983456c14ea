package e2e

import (
	"fmt"
	"strings"

	"yurtcoordinator/internal/pages"
	"yurtcoordinator/lab/e2e/kit"
)

//go:generate go test -vet=off . -count=1 -run ^TestThePageIsOfTheScenarios$ -update

// head is how the page begins, with ~ for backticks.
const head = `# Scenarios

<!-- Generated from the scenarios' own descriptions by "go -C lab generate ./e2e": change those, not this page. -->

A scenario boots a lab of real Kubernetes components, breaks it, and compares what the cloud's watches reported with what must
be seen. ~make test~ runs the %d of the tier core. Those of the tier promise show what else the README, the
[figures](figures.md) and the [threat model](threat-model.md) say; those of the tier field try kubeadm, Helm, OpenYurt, proxies,
registries, browsers and the commands of the pages. ~make e2e~ runs all %d, some of them with Kubernetes' own timing. To run one,
with what it measured at the end:

~~~
bin/yurtlab run cut-one
~~~

The [tour](TOUR.md#where-do-i-change-) says which code decides what a scenario shows, and
[CONTRIBUTING](../CONTRIBUTING.md#a-new-scenario) how to add one.
`

// Page returns docs/scenarios.md: every scenario's own description, theme by theme, and which scenarios run which commands of
// the pages. commands are all of these commands.
func Page(commands []pages.Step) string {
	core := 0
	for _, s := range All() {
		if s.Tier == kit.Core {
			core++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, strings.ReplaceAll(head, "~", "`"), core, len(All()))
	for _, t := range Themes() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| scenario | tier | what must be seen |\n| --- | --- | --- |\n", t.Title, t.Doc)
		for _, s := range t.Scenarios {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, s.Tier, strings.ReplaceAll(s.Doc, "|", `\|`))
		}
	}
	return b.String() + shown(commands)
}
