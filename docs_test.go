package yurtcoordinator

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	docpages "yurtcoordinator/internal/pages"
)

// TestDocsNameWhatExists holds the pages to the code: every path, Go file and Go name that a page sets in backticks exists, and
// so does every file that a page links to.
func TestDocsNameWhatExists(t *testing.T) {
	code := readCode(t)
	pages := pagesOf(t)
	if len(pages) < 20 {
		t.Fatalf("found %d pages; something is wrong with this test", len(pages))
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(withoutBlocks(string(text)), "\n") {
			for _, claim := range claimsOf(page, line) {
				checked++
				if why := code.refutes(claim); why != "" {
					t.Errorf("%s:%d: %s", page, n+1, why)
				}
			}
		}
	}
	if checked < 150 {
		t.Fatalf("found %d claims; something is wrong with this test", checked)
	}
}

// TestDocsCheckFindsLies shows that the check above can fail.
func TestDocsCheckFindsLies(t *testing.T) {
	code := readCode(t)
	for _, lie := range []string{
		"see `internal/nowhere`", "in `nowhere.go`", "`lead.Nowhere` decides", "`lead.Elector.Nowhere`", "`Elector.Nowhere`",
		"`lead.nowhere` decides", "run `go test ./internal/nowhere -bench .`", "[a page](nowhere.md)", "- `nowhere` does much",
	} {
		claims := claimsOf("docs/ARCHITECTURE.md", lie)
		if len(claims) != 1 || code.refutes(claims[0]) == "" {
			t.Errorf("%s: not refuted (claims %v)", lie, claims)
		}
	}
	for _, truth := range []string{
		"see `internal/hub`", "in `arch_test.go`", "`lead.Elector` elects", "`lead.Elector.Run` and `Elector.Run`",
		"`http.Handler`", "`apps.openyurt.io/nodepool`", "`kubectl get nodes`", "[a page](lab.md)", "- `hub` does much",
		"`v1/services,x/v1/y`",
	} {
		for _, claim := range claimsOf("docs/ARCHITECTURE.md", truth) {
			if why := code.refutes(claim); why != "" {
				t.Errorf("%s: %s", truth, why)
			}
		}
	}
}

// TestCommentsNameWhatExists holds comments to the code, as pages are: each package, Go file and exported name that one names
// exists.
func TestCommentsNameWhatExists(t *testing.T) {
	code := readCode(t)
	checked := 0
	err := eachSource(func(p string) error {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(file) || p == "docs_test.go" {
			return err
		}
		local := map[string]bool{} // what a comment may name besides packages: variables of the file
		ast.Inspect(file, func(n ast.Node) bool {
			if i, is := n.(*ast.Ident); is {
				local[i.Name] = true
			}
			return true
		})
		for _, group := range file.Comments {
			for _, claim := range commentClaims(p, group.Text()) {
				checked++
				name, _, _ := strings.Cut(claim.text, ".")
				variable := claim.kind == aName && code.packages[name] == nil && local[name]
				if why := code.refutes(claim); why != "" && !variable {
					t.Errorf("%s: %s", set.Position(group.Pos()), why)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 500 {
		t.Errorf("found %d claims; something is wrong with this test", checked)
	}
	for _, lie := range []string{"as package nowhere does", "see nowhere.go", "lead.Nowhere decides", "Feed.Nowhere decides"} {
		if claims := commentClaims("feed.go", lie); len(claims) != 1 || code.refutes(claims[0]) == "" {
			t.Errorf("%s: not refuted (claims %v)", lie, claims)
		}
	}
}

var (
	namedPackage = regexp.MustCompile(`\b[Pp]ackage ([a-z][a-z0-9]+)\b`)
	namedFile    = regexp.MustCompile(`(?:^|[\s("])(\w+\.go)\b`)
	namedName    = regexp.MustCompile(`(?:^|[\s("])([a-z][a-z0-9]*\.[A-Z]\w*(?:\.[A-Z]\w*)?)\b`)
	namedMember  = regexp.MustCompile(`(?:^|[\s("])([A-Z][a-z]\w*\.[A-Z]\w*)\b`)
	// unnamed are words after "package" that are no names.
	unnamed = strings.Fields(`below cannot chooses comment does for from has in is keeps lists makes manager may must neither
		never of on or reads says shares state that under uses variables was whose with would`)
)

// commentClaims returns what a comment of a file claims to exist. The scenarios of lab/e2e/machinery name files of Kubernetes.
func commentClaims(file, text string) (all []claim) {
	for kind, named := range map[claimKind]*regexp.Regexp{
		aPackage: namedPackage, aFile: namedFile, aName: namedName, aMember: namedMember,
	} {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if kind == aPackage && slices.Contains(unnamed, m[1]) || kind == aFile && strings.Contains(file, "/machinery/") {
				continue
			}
			all = append(all, claim{kind, m[1]})
		}
	}
	return all
}

// TestReadmeFiguresAreOfThePage: a figure stands in one place, with how it is measured. README repeats at most ten rows of it.
func TestReadmeFiguresAreOfThePage(t *testing.T) {
	page, front := figureRows(t, "docs/figures.md"), figureRows(t, "README.md")
	if len(page) < 20 || len(front) == 0 || len(front) > 10 {
		t.Fatalf("found %d figures, and %d of them in README: want more than 20, and 1 to 10", len(page), len(front))
	}
	for _, row := range front {
		if !slices.Contains(page, row) {
			t.Errorf("README has a row that docs/figures.md has not: %s", row)
		}
	}
}

// TestMakeHasWhatPagesShow: each `make TARGET` in a page's code block is a target of the Makefile.
func TestMakeHasWhatPagesShow(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := docpages.Commands(".", "make")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range shown {
		for _, word := range c.Words[1:] {
			if strings.Contains(word, "=") || strings.HasPrefix(word, "-") {
				continue
			}
			if !strings.Contains(string(makefile), "\n"+word+":") {
				t.Errorf("%s:%d: %v: the Makefile has no target %s", c.Page, c.Line, c.Words, word)
			}
		}
	}
	if len(shown) < 3 {
		t.Errorf("found %d commands; something is wrong with this test", len(shown))
	}
}

// TestIndexNamesEveryPage: docs/README.md leads to each page of docs.
func TestIndexNamesEveryPage(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}

var update = flag.Bool("update", false, "write the index of decisions anew")

var (
	// status is the status line of a decision: what it says, and the decision that ends it, if one does.
	status = regexp.MustCompile(`(?s)\A# (\d+)\. ([^\n]+)\n\nStatus: (accepted\.|withdrawn|replaced)` +
		`(?:\s?(Partly withdrawn)?\sby \[ADR (\d+)\]\(([\w.-]+)\))?`)
	// unused is a row of the index about a number without a page.
	unused = regexp.MustCompile(`(?m)^\| (\d+) \| – \| .+ \|\n`)
)

// TestDecisionsAreIndexed holds docs/adr/README.md to the decisions: each number up to the last has a row, with the page's title
// and state, or with the reason why there is no page.
func TestDecisionsAreIndexed(t *testing.T) {
	const page, head = "docs/adr/README.md", "| | decision | state |\n| --- | --- | --- |\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("docs/adr/0*.md")
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for _, m := range unused.FindAllStringSubmatch(string(text), -1) {
		why[m[1]] = m[0]
	}
	above, _, _ := strings.Cut(string(text), head)
	want, next := above+head, 1
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		says, name := status.FindStringSubmatch(string(content)), filepath.Base(file)
		if says == nil || strings.TrimLeft(name[:4], "0") != says[1] {
			t.Errorf("%s does not begin with its number, title and status, as %s says", file, page)
			continue
		}
		for ; fmt.Sprintf("%04d", next) < name[:4]; next++ {
			if why[fmt.Sprint(next)] == "" {
				t.Errorf("there is no decision %d: say why in %s, by a row | %d | – | why |", next, page, next)
			}
			want += why[fmt.Sprint(next)]
		}
		next++
		state := "in force"
		if by := says[5]; by != "" {
			state = fmt.Sprintf("%s by [%s](%s)", strings.ToLower(cmp.Or(says[4], says[3])), by, says[6])
		}
		want += fmt.Sprintf("| [%s](%s) | %s | %s |\n", says[1], name, says[2], state)
	}
	switch {
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(text):
		t.Errorf("%s is not what the decisions say of themselves: go test . -run %s -update", page, t.Name())
	}
}

// TestFeaturesHaveAState: each feature of docs/README.md is core, optional or withdrawn, and has a page or what to do instead.
func TestFeaturesHaveAState(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, features, _ := strings.Cut(string(index), "\n## Features\n")
	features, _, _ = strings.Cut(features, "\n## ")
	of := map[string]int{}
	for line := range strings.Lines(features) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| feature ") {
			continue
		}
		if len(cells) != 3 || len(cells[2]) < 3 || !slices.Contains([]string{"core", "optional", "withdrawn"}, cells[1]) {
			t.Errorf("docs/README.md: a feature is core, optional or withdrawn, with its page or what to do instead: %s", line)
			continue
		}
		of[cells[1]]++
	}
	if of["core"] < 5 || of["optional"] < 5 || of["withdrawn"] < 5 {
		t.Errorf("found %v features; something is wrong with this test", of)
	}
}

// figureRows are the rows of a page's tables of figures.
func figureRows(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "| figure |"):
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && !strings.HasPrefix(line, "| ---"):
			rows = append(rows, line)
		}
	}
	return rows
}

// claim is something that a page says exists.
type claim struct {
	kind claimKind
	text string
}

type claimKind uint8

const (
	aPath claimKind = iota
	aFile
	aName    // package.Name or package.Type.Member
	aMember  // Type.Member
	aPackage // or a program
)

var (
	span     = regexp.MustCompile("`([^`]+)`")
	link     = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	pathLike = regexp.MustCompile(`^(?:\./)?((?:internal|cmd|lab|deploy|docs|hack|apis)/[\w./-]*)$`)
	fileLike = regexp.MustCompile(`^\w+\.go$`)
	nameLike = regexp.MustCompile(`^[a-z]\w*\.[A-Z]\w*(?:\.\w+)?(?:\(\))?$`)
	// inside is as nameLike, with names that are not exported. Only pages about the code are held to these: elsewhere such a
	// word is a field of an object, or a host.
	inside = regexp.MustCompile(`^[a-z]\w*\.[a-z]\w*(?:\.\w+)?(?:\(\))?$`)
	member = regexp.MustCompile(`^[A-Z]\w*\.[A-Z]\w*(?:\(\))?$`)
	// item is a line of a page about the code that explains a package.
	item = regexp.MustCompile("^(?:- |\\| )`([a-z][a-z0-9-]*)`")
)

// claimsOf returns what a line of a page claims to exist.
func claimsOf(page, line string) []claim {
	var all []claim
	aboutCode := path.Base(page) == "ARCHITECTURE.md" || path.Base(page) == "TOUR.md"
	if m := item.FindStringSubmatch(line); m != nil && aboutCode {
		all = append(all, claim{aPackage, m[1]})
	}
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		all = append(all, claim{aPath, path.Join(path.Dir(filepath.ToSlash(page)), m[1])})
	}
	for _, m := range span.FindAllStringSubmatch(line, -1) {
		words := strings.Fields(m[1])
		for _, word := range words {
			if p := pathLike.FindStringSubmatch(strings.TrimSuffix(word, "/...")); p != nil {
				all = append(all, claim{aPath, p[1]})
			}
		}
		if len(words) != 1 {
			continue
		}
		name := strings.TrimSuffix(words[0], "()")
		switch {
		case fileLike.MatchString(name):
			all = append(all, claim{aFile, name})
		case nameLike.MatchString(name), aboutCode && inside.MatchString(name):
			all = append(all, claim{aName, name})
		case member.MatchString(name):
			all = append(all, claim{aMember, name})
		}
	}
	return all
}

// withoutBlocks empties the lines of code blocks, in which there are commands and drawings.
func withoutBlocks(text string) string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			inside = !inside
		}
		if fence || inside {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// code is what there is to be named.
type code struct {
	files    map[string]bool            // base names
	packages map[string]map[string]bool // the names that the packages of a name declare: Name and Type.Member
	members  map[string]bool            // Type.Member of any package
	foreign  map[string]bool            // names of packages that ours import
	programs map[string]bool
}

// refutes says why a claim does not hold; empty if it does.
func (c *code) refutes(claimed claim) string {
	switch text := claimed.text; claimed.kind {
	case aPath:
		if _, err := os.Stat(filepath.FromSlash(text)); err != nil {
			return text + ": no such file or directory"
		}
	case aFile:
		if !c.files[text] {
			return text + ": no such file"
		}
	case aMember:
		if !c.members[text] {
			return text + ": no type of ours has that"
		}
	case aPackage:
		if c.packages[text] == nil && !c.programs[text] && !c.foreign[text] {
			return text + ": no such package or program"
		}
	case aName:
		name, rest, _ := strings.Cut(text, ".")
		switch declared := c.packages[name]; {
		case declared == nil && !c.foreign[name]:
			return text + ": no package of ours has that name, and none that ours import"
		case declared != nil && !declared[rest] && !c.foreign[name]:
			return text + ": package " + name + " does not declare it"
		}
	}
	return ""
}

func pagesOf(t *testing.T) []string {
	t.Helper()
	pages := []string{
		"README.md", "CONTRIBUTING.md", "GOVERNANCE.md", "CODE_OF_CONDUCT.md", "ROADMAP.md", "SECURITY.md", "examples/README.md",
		"apis/README.md", "lab/README.md", "deploy/charts/yurt-coordinator/README.md",
	}
	err := filepath.WalkDir("docs", func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".md") {
			pages = append(pages, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func readCode(t *testing.T) *code {
	t.Helper()
	c := &code{
		files: map[string]bool{}, packages: map[string]map[string]bool{}, members: map[string]bool{},
		foreign: map[string]bool{"encoding": true}, programs: map[string]bool{},
	}
	err := eachSource(func(p string) error {
		c.files[filepath.Base(p)] = true
		if dir, base := filepath.Split(filepath.Dir(p)); filepath.Base(dir) == "cmd" {
			c.programs[base] = true
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.take(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eachSource calls f with each Go file's path.
func eachSource(f func(p string) error) error {
	return filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(p, ".go"):
			return nil
		}
		return f(p)
	})
}

func (c *code) take(file *ast.File) {
	for _, i := range file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		if strings.HasPrefix(p, module) {
			continue
		}
		c.foreign[path.Base(p)] = true
		if i.Name != nil {
			c.foreign[i.Name.Name] = true
		}
	}
	name := strings.TrimSuffix(file.Name.Name, "_test")
	declared := c.packages[name]
	if declared == nil {
		declared = map[string]bool{}
		c.packages[name] = declared
	}
	memberOf := func(typ, m string) {
		declared[typ+"."+m], c.members[typ+"."+m] = true, true
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				declared[d.Name.Name] = true
				continue
			}
			memberOf(receiver(d.Recv.List[0].Type), d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					declared[s.Name.Name] = true
					for _, m := range fieldsOf(s.Type) {
						memberOf(s.Name.Name, m)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						declared[n.Name] = true
					}
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// fieldsOf are the fields of a struct, or the methods of an interface.
func fieldsOf(e ast.Expr) []string {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	var names []string
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		if len(f.Names) == 0 {
			if s, ok := f.Type.(*ast.SelectorExpr); ok {
				names = append(names, s.Sel.Name)
				continue
			}
			names = append(names, receiver(f.Type))
		}
	}
	return names
}
