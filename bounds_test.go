package yurtcoordinator

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bound is a row of the tables of bounds in docs/threat-model.md.
type bound struct {
	what, number, dir, name, metric string
	tests                           []string
}

// TestBoundsAreThoseOfTheCode holds the tables of bounds to the code: each number is that of its constant, each metric is on the
// page of metrics, and each test exists.
func TestBoundsAreThoseOfTheCode(t *testing.T) {
	page, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := boundsOf(t, string(page))
	if len(rows) < 40 {
		t.Fatalf("found %d bounds; something is wrong with this test", len(rows))
	}
	tests := testsAndScenarios(t)
	for _, b := range rows {
		for _, wrong := range b.refuted(t, string(metrics), tests) {
			t.Errorf("%q: %s", b.what, wrong)
		}
	}
}

// TestBoundsCheckFindsLies shows that the check above can fail.
func TestBoundsCheckFindsLies(t *testing.T) {
	tests := map[string]bool{"TestA": true}
	truth := bound{"a", "16 KiB", "internal/pool/exchange", "MaxLease", "yurt_a_total`, `large", []string{"TestA"}}
	metrics := "| `yurt_a_total` | too `large` |"
	if wrong := truth.refuted(t, metrics, tests); len(wrong) > 0 {
		t.Errorf("the truth is refuted: %v", wrong)
	}
	for what, lie := range map[string]func(*bound){
		"another number": func(b *bound) { b.number = "17 KiB" },
		"another unit":   func(b *bound) { b.number = "16 MiB" },
		"no number":      func(b *bound) { b.number = "few" },
		"no constant":    func(b *bound) { b.name = "MaxNothing" },
		"no metric":      func(b *bound) { b.metric = "yurt_b_total" },
		"no such label":  func(b *bound) { b.metric = "yurt_a_total`, `small" },
		"no such test":   func(b *bound) { b.tests = []string{"TestA", "TestB"} },
		"no test":        func(b *bound) { b.tests = nil },
	} {
		b := truth
		lie(&b)
		if len(b.refuted(t, metrics, tests)) != 1 {
			t.Errorf("%s: %v", what, b.refuted(t, metrics, tests))
		}
	}
}

var inCode = regexp.MustCompile("^`([\\w/]+)`: `(\\w+)`$")

// boundsOf returns the rows of the tables that have a column "in the code".
func boundsOf(t *testing.T, page string) (all []bound) {
	t.Helper()
	inside := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.Contains(line, "| in the code |"):
			inside = true
		case inside && !strings.HasPrefix(line, "| ---"):
			if len(cells) != 6 {
				t.Fatalf("%q has %d cells", line, len(cells))
			}
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			code := inCode.FindStringSubmatch(cells[2])
			if code == nil || cells[3] == "" {
				t.Fatalf("%q: want the constant, and what is beyond it", line)
			}
			b := bound{what: cells[0], number: cells[1], dir: code[1], name: code[2], metric: strings.Trim(cells[4], "`")}
			for _, m := range span.FindAllStringSubmatch(cells[5], -1) {
				b.tests = append(b.tests, m[1])
			}
			all = append(all, b)
		}
	}
	return all
}

// refuted says what is wrong with a row.
func (b bound) refuted(t *testing.T, metrics string, tests map[string]bool) (wrong []string) {
	t.Helper()
	want, err := number(b.number)
	if err != nil {
		wrong = append(wrong, err.Error())
	} else if got, ok := constants(t, b.dir)[b.name]; !ok {
		wrong = append(wrong, fmt.Sprintf("%s has no constant %s", b.dir, b.name))
	} else if got != want {
		wrong = append(wrong, fmt.Sprintf("%s is %d, and not %s", b.name, got, b.number))
	}
	if b.metric != "–" {
		name, label, _ := strings.Cut(b.metric, "`, `")
		row := regexp.MustCompile("(?m)^\\| .*`" + regexp.QuoteMeta(name) + "`.*$").FindString(metrics)
		if !strings.Contains(row, label) || row == "" {
			wrong = append(wrong, fmt.Sprintf("docs/metrics.md does not have %s with %q", name, label))
		}
	}
	if len(b.tests) == 0 {
		wrong = append(wrong, "it names no test")
	}
	for _, name := range b.tests {
		if !tests[name] {
			wrong = append(wrong, name+" does not exist")
		}
	}
	return wrong
}

// number reads a number with a unit, as bytes or nanoseconds.
func number(text string) (int64, error) {
	digits, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	factor, ok := map[string]int64{
		"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute),
	}[unit]
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is no number with a unit", text)
	}
	return n * factor, nil
}

// constants returns the constants of a package that are numbers and times.
func constants(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			block, ok := n.(*ast.GenDecl)
			if !ok || block.Tok != token.CONST {
				return true
			}
			for _, each := range block.Specs {
				spec, _ := each.(*ast.ValueSpec)
				for i, value := range spec.Values {
					values[spec.Names[i].Name] = value
				}
			}
			return false
		})
	}
	all := map[string]int64{}
	for name, expr := range values {
		if v, ok := constant.Int64Val(constant.ToInt(evaluated(expr, values))); ok {
			all[name] = v
		}
	}
	return all
}

// evaluated returns the value of an expression of numbers, times and other constants of its package; unknown if it has others.
func evaluated(e ast.Expr, known map[string]ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return evaluated(e.X, known)
	case *ast.Ident:
		if other, ok := known[e.Name]; ok {
			return evaluated(other, known)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{
			"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		}
		if from, ok := e.X.(*ast.Ident); ok && from.Name == "time" && units[e.Sel.Name] != 0 {
			return constant.MakeInt64(int64(units[e.Sel.Name]))
		}
	case *ast.BinaryExpr:
		x, y := evaluated(e.X, known), evaluated(e.Y, known)
		if x.Kind() != constant.Int || y.Kind() != constant.Int {
			break
		}
		switch e.Op {
		case token.SHL, token.SHR:
			by, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(by))
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(x, e.Op, y)
		case token.QUO:
			return constant.BinaryOp(x, token.QUO_ASSIGN, y)
		}
	}
	return constant.MakeUnknown()
}

// testsAndScenarios returns the names of all tests and scenarios.
func testsAndScenarios(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)|Name: "([a-z0-9-]+)", Lab: `)
	all := map[string]bool{}
	err := eachSource(func(p string) error {
		content, err := os.ReadFile(p)
		for _, m := range declared.FindAllStringSubmatch(string(content), -1) {
			all[m[1]+m[2]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("found %d tests and scenarios; something is wrong with this test", len(all))
	}
	return all
}
