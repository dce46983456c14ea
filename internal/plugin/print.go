package plugin

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"yurtcoordinator/apis/apps/v1beta2"
)

// formWide is the form of output that is a table with more columns.
const formWide = "wide"

// formName is the form of output that names objects.
const formName = "name"

// group is the API group of what the plugin shows as objects. No server knows it.
var group = schema.GroupVersion{Group: "kubectl.openyurt.io", Version: "v1alpha1"}

// printing holds the flags of a command's output.
type printing struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// addPrinting gives a command kubectl's own flags of output.
func addPrinting(cmd *cobra.Command) *printing {
	p := &printing{flags: genericclioptions.NewPrintFlags("")}
	p.flags.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format. One of: (" +
		strings.Join(append(p.flags.AllowedFormats(), formWide), ", ") + "). Without it, a table."
	cmd.Flags().BoolVar(&p.noHeaders, "no-headers", false, "Print tables without headers and without a summary.")
	return p
}

// printer returns what prints to out as the flags say.
func (p *printing) printer(out io.Writer) (*printer, error) {
	form := *p.flags.OutputFormat
	to := &printer{out: Visible(out), wide: form == formWide, noHeaders: p.noHeaders, colour: coloured(out), now: time.Now()}
	if to.wide || form == "" && *p.flags.TemplatePrinterFlags.TemplateArgument == "" {
		return to, nil
	}
	var err error
	to.objects, err = p.flags.ToPrinter()
	to.names = form == formName
	return to, err
}

// coloured reports whether to use colour: on a terminal, unless the user declined it (https://no-color.org).
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}

// printer shows the results of commands.
type printer struct {
	out io.Writer
	// objects prints results as objects; nil means that they are shown as tables.
	objects printers.ResourcePrinter
	// names says that objects are printed by what they are about, as kubectl names it.
	names bool
	// wide shows more columns, noHeaders leaves out headers and summaries, colour is whether states are coloured.
	wide, noHeaders, colour bool
	now                     time.Time

	// rows prints tables. It and what it writes to are kept, so that what a watch adds stands in the same columns.
	rows    printers.ResourcePrinter
	columns interface {
		io.Writer
		Flush() error
	}
	text bytes.Buffer
}

// result is something that can be shown as an object.
type result struct {
	kind, name string
	// content is its content, as JSON has it.
	content any
	// about are the objects of the cluster that it is about.
	about []about
}

// about is an object of the cluster.
type about struct {
	kind schema.GroupVersionKind
	name string
}

func aboutPool(name string) about {
	return about{v1beta2.GroupVersion.WithKind("NodePool"), name}
}

func aboutNode(name string) about {
	return about{schema.GroupVersionKind{Version: "v1", Kind: "Node"}, name}
}

// object prints one result.
func (p *printer) object(r result) error {
	if p.names {
		return p.named(r.about)
	}
	u, err := r.unstructured()
	if err != nil {
		return err
	}
	return p.objects.PrintObj(u, p.out)
}

// list prints results as a list.
func (p *printer) list(kind string, all []result) error {
	items := &unstructured.UnstructuredList{Object: map[string]any{}}
	items.SetGroupVersionKind(group.WithKind(kind + "List"))
	for _, r := range all {
		if p.names {
			if err := p.named(r.about); err != nil {
				return err
			}
			continue
		}
		u, err := r.unstructured()
		if err != nil {
			return err
		}
		items.Items = append(items.Items, *u)
	}
	if p.names {
		return nil
	}
	return p.objects.PrintObj(items, p.out)
}

func (p *printer) named(all []about) error {
	for _, a := range all {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
		o.SetGroupVersionKind(a.kind)
		if err := p.objects.PrintObj(o, p.out); err != nil {
			return err
		}
	}
	return nil
}

func (r result) unstructured() (*unstructured.Unstructured, error) {
	text, err := json.Marshal(r.content)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(group.WithKind(r.kind))
	u.SetName(r.name)
	return u, nil
}

// row is a line of a table. Its state decides its colour, and may be empty.
type row struct {
	state string
	cells []any
}

// head returns columns of a table; those after the empty name are for wide tables only.
func head(names ...string) (columns []metav1.TableColumnDefinition) {
	priority := int32(0)
	for _, name := range names {
		if name == "" {
			priority = 1
			continue
		}
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	}
	return columns
}

// table writes a head and rows in columns. It first aligns the lines and then colours whole ones, because a tab writer would
// count colour codes as text.
func (p *printer) table(columns []metav1.TableColumnDefinition, rows []row) error {
	if p.rows == nil {
		p.rows = printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide, NoHeaders: p.noHeaders})
		p.columns = printers.GetNewTabWriter(&p.text)
	}
	t := &metav1.Table{ColumnDefinitions: columns}
	for _, r := range rows {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: r.cells})
	}
	if err := p.rows.PrintObj(t, p.columns); err != nil {
		return err
	}
	if err := p.columns.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
	p.text.Reset()
	for i, line := range lines {
		line = strings.TrimRight(line, " ")
		if of := i - (len(lines) - len(rows)); of >= 0 {
			line = p.paint(rows[of].state, line)
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

// nextTable begins another table, with columns of its own.
func (p *printer) nextTable() { p.rows = nil }

// paint colours a text by its state. A good state gets no colour.
func (p *printer) paint(state, text string) string {
	if !p.colour {
		return text
	}
	switch state {
	case StateConnected, CoordinatorReady, LevelOK, "":
		return text
	case StateDelegated, CoordinatorNone, CoordinatorNew, LevelWarn:
		return yellow + text + reset
	}
	return red + text + reset
}

// ago says how long ago a time was. A time in the future was written by a clock ahead of ours.
func (p *printer) ago(t *time.Time) string { return ago(t, p.now) }

func ago(t *time.Time, now time.Time) string {
	switch {
	case t == nil:
		return "-"
	case t.After(now.Add(time.Second)):
		return short(t.Sub(now)) + " ahead"
	}
	return short(now.Sub(*t)) + " ago"
}

func short(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

func orNone(s string) string { return cmp.Or(s, "-") }
