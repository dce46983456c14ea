package plugin

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

var somePools = []Pool{
	{Name: "a", Nodes: 5, Ready: 4, Coordinator: CoordinatorReady, CoordinatorNode: "a1", Leader: "a2",
		LeaderSaid: ptr.To(noon.Add(-20 * time.Second)), Delegated: []string{"a3", "a4", "a5", "a6"}, Outside: []string{},
		Problems:            []string{"1 of 5 nodes are not Ready", "too few"},
		HubVersions:         map[edge.NodeName]string{"a1": "v0.2.0", "a2": "v0.3.0", "a3": "v0.2.0"},
		CoordinatorVersions: []string{"v0.2.0-k1.36.3", "v0.2.0-k1.36.3"}},
	{Name: "bb", Nodes: 3, Ready: 3, Coordinator: CoordinatorReady, Leader: "b1", LeaderSaid: ptr.To(noon.Add(time.Minute))},
	{Name: "c", Coordinator: "TooFewNodes", Problems: []string{"no coordinator serves: it has two nodes"}},
}

// printed returns what is printed with --output.
func printed(t *testing.T, output string, show func(*printer) error) string {
	t.Helper()
	cmd := &cobra.Command{}
	flags := addPrinting(cmd)
	if err := cmd.ParseFlags([]string{"--output=" + output}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p, err := flags.printer(&b)
	if err != nil {
		t.Fatal(err)
	}
	p.now = noon
	if err := show(p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPrintLeaders: who leads at standbys that the leader does not reach is shown, and does not come between a script and the
// leader's name.
func TestPrintLeaders(t *testing.T) {
	p := Pool{Name: "a", Leader: "a1", LeaderSaid: ptr.To(noon), OtherLeaders: []edge.SlotLeader{{Slot: 2, Leader: "a3"}}}
	if got := p.leaders(); got != "a1,a3/2" {
		t.Errorf("the leaders are %q", got)
	}
	leader := func(out *printer) error { return out.leader(&p) }
	for output, want := range map[string]string{
		"": "a1\n", "wide": "a1,a3/2   reported 0s ago\n", "jsonpath={.leader} {.others[0].leader}": "a1 a3",
	} {
		if got := printed(t, output, leader); got != want {
			t.Errorf("-o %s: %q, want %q", output, got, want)
		}
	}
}

func TestPrintPools(t *testing.T) {
	for name, c := range map[string]struct {
		p    printer
		view poolView
		want string
	}{
		"a table": {printer{}, poolView{}, `POOL READY COORDINATOR LEADER DELEGATED OUTSIDE
a 4/5 Ready a2 a3,a4 and 2 more -
bb 3/3 Ready b1 - -
c 0/0 TooFewNodes - - -
`},
		"a wide one": {printer{wide: true}, poolView{},
			`POOL READY COORDINATOR LEADER DELEGATED OUTSIDE COORDINATOR NODE LEADER REPORTED HUB VERSIONS ` +
				`COORDINATOR VERSIONS
a 4/5 Ready a2 a3,a4,a5,a6 - a1 20s ago v0.2.0 (2), v0.3.0 (1) v0.2.0-k1.36.3
bb 3/3 Ready b1 - - - 60s ahead - -
c 0/0 TooFewNodes - - - - - - -
`},
		"problems": {printer{noHeaders: true}, poolView{problems: true},
			`a 4/5 Ready a2 1 of 5 nodes are not Ready; too few
bb 3/3 Ready b1 -
c 0/0 TooFewNodes - no coordinator serves: it has two nodes
`},
	} {
		var b bytes.Buffer
		c.p.out, c.p.now = &b, noon
		if err := c.p.pools(somePools, c.view); err != nil || squeeze(b.String()) != c.want {
			t.Errorf("%s:\n%s, %v", name, b.String(), err)
		}
	}
}

// All of kubectl's forms of output work, on what the cluster's objects are called there.
func TestForms(t *testing.T) {
	pools := func(p *printer) error { return p.pools(somePools, poolView{}) }
	for form, want := range map[string]string{
		"name":                               strings.ReplaceAll("NP/a\nNP/bb\nNP/c\n", "NP", "nodepool.apps.openyurt.io"),
		"jsonpath={.items[*].metadata.name}": "a bb c",
		"jsonpath={.items[0].delegated[1]}":  "a4",
		"jsonpath={.kind} {.items[0].kind}":  "PoolList Pool",
		"go-template={{len .items}}":         "3",
		"jsonpath={.items[2].problems[0]}":   "no coordinator serves: it has two nodes",
		"jsonpath={.items[0].apiVersion}":    "kubectl.openyurt.io/v1alpha1",
		"jsonpath-as-json={.items[1].ready}": "[\n    3\n]\n",
	} {
		if got := printed(t, form, pools); got != want {
			t.Errorf("%s: %q, want %q", form, got, want)
		}
	}
	yaml := printed(t, "yaml", pools)
	lines := []string{"kind: PoolList", "- apiVersion: kubectl.openyurt.io/v1alpha1", "    name: bb", "  leader: a2"}
	for _, line := range lines {
		if !strings.Contains(yaml, line+"\n") {
			t.Errorf("YAML lacks %q:\n%s", line, yaml)
		}
	}
	if got := printed(t, "name", func(p *printer) error { return p.explanation(Explanation{Node: "n1"}) }); got != "node/n1\n" {
		t.Errorf("a node: %q", got)
	}
	if got := printed(t, "json", func(p *printer) error { return p.changed(somePools[:1], poolView{}) }); !strings.Contains(got,
		`"kind": "Pool"`) {
		t.Errorf("a changed pool: %s", got)
	}
	cmd := &cobra.Command{}
	flags := addPrinting(cmd)
	if err := cmd.ParseFlags([]string{"-o", "toml"}); err != nil {
		t.Fatal(err)
	}
	if _, err := flags.printer(io.Discard); err == nil || !strings.Contains(err.Error(), "jsonpath") {
		t.Errorf("an unknown form: %v", err)
	}
}

// What a watch adds stands in the columns of the list, and has no second head.
func TestColumnsStay(t *testing.T) {
	var b bytes.Buffer
	p := printer{out: &b, now: noon}
	if err := errors.Join(p.pools(somePools, poolView{}), p.changed(somePools[1:2], poolView{})); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 6 || lines[4] != lines[2] {
		t.Errorf("a pool was shown first and then as\n%s", b.String())
	}
}

// Colour is around a line as a whole, so that the columns stay where they are, and never where nobody sees it.
func TestColour(t *testing.T) {
	var plain, coloured bytes.Buffer
	if err := (&printer{out: &plain, now: noon}).pools(somePools, poolView{}); err != nil {
		t.Fatal(err)
	}
	if err := (&printer{out: &coloured, colour: true, now: noon}).pools(somePools, poolView{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("coloured, though nobody asked for it: %q", plain.String())
	}
	got := strings.Split(coloured.String(), "\n")
	for i, line := range strings.Split(plain.String(), "\n") {
		want := map[int]string{1: "\x1b[33m" + line + "\x1b[0m", 3: "\x1b[31m" + line + "\x1b[0m"}[i]
		if want == "" {
			want = line
		}
		if got[i] != want {
			t.Errorf("line %d: %q, want %q", i, got[i], want)
		}
	}
}

// A kubeconfig is a key: nobody else may read it, and one that was there before is replaced as a whole.
func TestWritePrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k")
	if err := os.WriteFile(path, []byte("old and longer than the new one"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s)
			return err
		}
	}
	if err := writePrivate(path, text("new")); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err != nil || err2 != nil || string(content) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v, %v", content, info.Mode(), err, err2)
	}
	if err := writePrivate(filepath.Join(dir, "no", "k"), text("")); err == nil {
		t.Error("written to a directory that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(filepath.Join(dir, "d"), text("x")); err == nil {
		t.Error("written over a directory")
	}
	broke := errors.New("broke off")
	if err := writePrivate(path, func(io.Writer) error { return broke }); !errors.Is(err, broke) {
		t.Errorf("writing broke off: %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "new" {
		t.Errorf("what was written broke off, and the file has %q, %v", content, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
