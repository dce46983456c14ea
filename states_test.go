package yurtcoordinator

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stateless are the packages of the hub that guard fields by a mutex and have no state that an event enters: what they guard is
// replaced by the next value, or ends with the caller that made it.
var stateless = map[string]string{
	"internal/hub/config":  "the settings in force are those that were said last",
	"internal/hub/hubtest": "it is there for tests",
}

// TestEachStateEnds walks the lists of states in the packages' docs: each names an identifier of its package, what enters the
// state, what ends it, and a test of the package that sees the end. A package with a mutex has a list, or is stateless.
func TestEachStateEnds(t *testing.T) {
	items := 0
	err := filepath.WalkDir("internal/hub", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() == "testdata" {
			return err
		}
		p, err := readRoom(dir)
		if err != nil || len(p.declared) == 0 {
			return err
		}
		why, listed := stateless[dir]
		switch {
		case !p.section && p.guards && !listed:
			t.Errorf("%s has a mutex: list its states under # States in its doc, or say in stateless why there are none", dir)
		case listed && (p.section || !p.guards):
			t.Errorf("%s is stateless (%s), and has a mutex: %t, a list of states: %t", dir, why, p.guards, p.section)
		}
		for _, item := range p.items {
			items++
			for _, wrong := range p.refutes(item) {
				t.Errorf("%s: %s: %s", dir, item, wrong)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range stateless {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if items < 100 {
		t.Errorf("found %d states; something is wrong with this test", items)
	}
}

// TestStatesCheckFindsLies shows that the check above can fail.
func TestStatesCheckFindsLies(t *testing.T) {
	p, err := readRoom("internal/hub/cache")
	if err != nil {
		t.Fatal(err)
	}
	const truth = "FeedStatus.Denied: entered when the cloud denies; ends when a stream opens. (TestDeniedIsTriedSlowlyAndSaid)"
	if wrong := p.refutes(truth); len(wrong) > 0 {
		t.Errorf("%s: %q", truth, wrong)
	}
	for from, to := range map[string]string{
		"FeedStatus.Denied":                 "FeedStatus.Nowhere",
		"entered when":                      "if",
		"ends when a stream opens":          "it stays",
		"TestDeniedIsTriedSlowlyAndSaid":    "TestNowhere",
		" (TestDeniedIsTriedSlowlyAndSaid)": "",
		"a stream opens":                    "nowhereTime is over",
	} {
		if lie := strings.Replace(truth, from, to, 1); len(p.refutes(lie)) != 1 {
			t.Errorf("%s: %q, want one complaint", lie, p.refutes(lie))
		}
	}
}

// room is a package of the hub, as its list of states is held to it.
type room struct {
	declared map[string]bool // as an item of the list names it
	guards   bool            // a struct of it has a mutex
	section  bool            // its doc has a list of states
	items    []string
	tests    map[string]bool
	words    map[string]bool // of its tests
}

var (
	stateItem = regexp.MustCompile(`^([A-Za-z]\w*(?:\.[A-Za-z]\w*)?): (.+) \((Test\w+(?:, Test\w+)*)\)$`)
	// stateName is a word that can only be a name: it has an upper-case letter or a dot within.
	stateName = regexp.MustCompile(`\b(?:\w+\.\w+|[A-Za-z][a-z]*[A-Z]\w*)\b`)
	word      = regexp.MustCompile(`\w+`)
)

func readRoom(dir string) (*room, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	c := &code{packages: map[string]map[string]bool{}, members: map[string]bool{}, foreign: map[string]bool{}}
	p := &room{declared: map[string]bool{}, tests: map[string]bool{}, words: map[string]bool{}}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "_test.go") {
			for _, w := range word.FindAllString(string(content), -1) {
				p.words[w] = true
			}
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Recv == nil {
					p.tests[f.Name.Name] = true
				}
			}
			continue
		}
		c.take(file)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, is := n.(*ast.StructType); is {
				for _, f := range s.Fields.List {
					of, is := f.Type.(*ast.SelectorExpr)
					p.guards = p.guards || is && (of.Sel.Name == "Mutex" || of.Sel.Name == "RWMutex")
				}
			}
			return true
		})
		if items, there := statesOf(file.Doc.Text()); there {
			p.section, p.items = true, items
		}
	}
	for _, declared := range c.packages {
		maps.Copy(p.declared, declared)
	}
	return p, nil
}

// statesOf returns the items of a doc's list of states, each as one line.
func statesOf(doc string) (items []string, there bool) {
	_, section, there := strings.Cut(doc, "# States\n")
	section, _, _ = strings.Cut(section, "\n# ")
	for line := range strings.Lines(section) {
		text := strings.TrimSpace(line)
		switch item, begins := strings.CutPrefix(text, "- "); {
		case begins:
			items = append(items, item)
		case text != "" && strings.HasPrefix(line, "    ") && len(items) > 0:
			items[len(items)-1] += " " + text
		}
	}
	return items, there
}

// refutes says what is wrong with an item.
func (p *room) refutes(item string) (wrong []string) {
	parts := stateItem.FindStringSubmatch(item)
	if parts == nil {
		return []string{`want "Name: entered when …; ends when …. (TestX)"`}
	}
	name, text := parts[1], parts[2]
	if !p.declared[name] {
		wrong = append(wrong, "the package does not declare "+name)
	}
	for _, want := range []string{"entered when ", "; ends when "} {
		if !strings.Contains(text, want) {
			wrong = append(wrong, fmt.Sprintf("it does not say %q", want))
		}
	}
	last := func(name string) string { return name[strings.LastIndex(name, ".")+1:] }
	seen := !p.declared[name] || p.words[last(name)]
	for _, of := range stateName.FindAllString(text, -1) {
		if first := of[:1]; !p.declared[of] && first == strings.ToLower(first) && !strings.Contains(of, ".") {
			wrong = append(wrong, "the package does not declare "+of)
		}
		seen = seen || p.words[last(of)]
	}
	for _, of := range word.FindAllString(text, -1) {
		seen = seen || p.declared[of] && p.words[of]
	}
	for test := range strings.SplitSeq(parts[3], ", ") {
		if !p.tests[test] {
			wrong = append(wrong, "there is no "+test)
		}
	}
	if !seen {
		wrong = append(wrong, "no test of the package names "+last(name)+", or a time of the item")
	}
	return slices.Compact(wrong)
}
