package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Forms of output. The default is a table.
const (
	formJSON = "json"
	formWide = "wide"
)

// printer shows the results of commands.
type printer struct {
	out  io.Writer
	form string
	// colour is whether states are coloured.
	colour bool
	now    time.Time
}

func (p printer) json(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// row is a line of a table. Its state decides its colour, and may be empty.
type row struct {
	state string
	cells []string
}

// table writes a head and rows in columns. It aligns lines first and colours whole lines then: a tab writer would count
// the width of colour codes.
func (p printer) table(head []string, rows []row) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r.cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " ")
		if i > 0 {
			line = p.paint(rows[i-1].state, line)
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

// paint colours a text by its state. A good state gets no colour.
func (p printer) paint(state, text string) string {
	if !p.colour {
		return text
	}
	const yellow, red, reset = "\x1b[33m", "\x1b[31m", "\x1b[0m"
	switch state {
	case StateConnected, CoordinatorReady, "":
		return text
	case StateDelegated, CoordinatorNone, CoordinatorNew:
		return yellow + text + reset
	}
	return red + text + reset
}

func (p printer) pools(pools []Pool) error {
	if p.form == formJSON {
		return p.json(pools)
	}
	head := []string{"POOL", "READY", "COORDINATOR", "LEADER", "DELEGATED", "OUTSIDE"}
	if p.form == formWide {
		head = append(head, "COORDINATOR NODE", "LEADER REPORTED")
	}
	rows := make([]row, 0, len(pools))
	for i := range pools {
		one := &pools[i]
		r := row{stateOfPool(one), []string{
			one.Name, fmt.Sprintf("%d/%d", one.Ready, one.Nodes), one.Coordinator, orNone(one.Leader),
			p.names(one.Delegated), p.names(one.Outside),
		}}
		if p.form == formWide {
			r.cells = append(r.cells, orNone(one.CoordinatorNode), p.ago(one.LeaderSaid))
		}
		rows = append(rows, r)
	}
	return p.table(head, rows)
}

// stateOfPool returns the word that decides the colour of a pool's line.
func stateOfPool(p *Pool) string {
	switch {
	case p.Coordinator != CoordinatorReady && p.Coordinator != CoordinatorNone && p.Coordinator != CoordinatorNew,
		p.Coordinator == CoordinatorReady && p.Leader == "":
		return StateSilent
	case len(p.Delegated)+len(p.Outside) > 0:
		return StateDelegated
	}
	return p.Coordinator
}

// names returns a list as text, shortened unless the output is wide.
func (p printer) names(all []string) string {
	const few = 3
	if len(all) <= few || p.form == formWide {
		return orNone(strings.Join(all, ","))
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few-1], ","), len(all)-few+1)
}

func (p printer) explanation(e Explanation) error {
	if p.form == formJSON {
		return p.json(e)
	}
	in := ""
	if e.Pool != "" {
		in = " of pool " + e.Pool
	}
	if _, err := fmt.Fprintf(p.out, "Node %s%s: %s\n%s\n", e.Node, in, p.paint(e.State, e.State), e.Because); err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		items []Item
	}{{"EVIDENCE", e.Evidence}, {"HISTORY", e.History}} {
		if len(part.items) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(p.out); err != nil {
			return err
		}
		if err := p.items(part.name, part.items); err != nil {
			return err
		}
	}
	return nil
}

func (p printer) items(name string, items []Item) error {
	rows := make([]row, len(items))
	for i, item := range items {
		rows[i].cells = []string{item.What, p.ago(item.Since), item.Says}
		if p.form == formWide && item.Since != nil {
			rows[i].cells[1] += " (" + item.Since.UTC().Format(time.RFC3339) + ")"
		}
	}
	return p.table([]string{name, "SINCE", "SAYS"}, rows)
}

// ago says how long ago a time was. A time in the future was written by a clock ahead of ours.
func (p printer) ago(t *time.Time) string {
	switch {
	case t == nil:
		return "-"
	case t.After(p.now.Add(time.Second)):
		return short(t.Sub(p.now)) + " ahead"
	}
	return short(p.now.Sub(*t)) + " ago"
}

func short(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

func orNone(s string) string { return cmp.Or(s, "-") }

// find returns the pool of that name.
func find(pools []Pool, name string) *Pool {
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &pools[i]
}
