package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// poolView says which columns a table of pools has.
type poolView struct {
	// problems shows what is wrong in a column of its own.
	problems bool
}

// pools shows pools, as a list or a table.
func (p *printer) pools(pools []Pool, view poolView) error {
	if p.objects == nil {
		return p.table(view.columns(), p.rowsOf(pools, view))
	}
	all := make([]result, len(pools))
	for i := range pools {
		all[i] = pools[i].result()
	}
	return p.list("Pool", all)
}

// changed shows pools that have changed, one after the other.
func (p *printer) changed(pools []Pool, view poolView) error {
	if p.objects == nil {
		return p.table(view.columns(), p.rowsOf(pools, view))
	}
	for i := range pools {
		if err := p.object(pools[i].result()); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) result() result {
	return result{kind: "Pool", name: p.Name, content: p, about: []about{aboutPool(p.Name)}}
}

func (v poolView) columns() []metav1.TableColumnDefinition {
	if v.problems {
		return head("Pool", "Ready", "Coordinator", "Leader", "Problems", "", "Coordinator node", "Leader reported",
			"Hub versions", "Coordinator versions")
	}
	return head("Pool", "Ready", "Coordinator", "Leader", "Delegated", "Outside", "", "Coordinator node", "Leader reported",
		"Hub versions", "Coordinator versions")
}

func (p *printer) rowsOf(pools []Pool, v poolView) []row {
	rows := make([]row, 0, len(pools))
	for i := range pools {
		one := &pools[i]
		r := row{stateOfPool(one), []any{
			one.Name, fmt.Sprintf("%d/%d", one.Ready, one.Nodes), one.Coordinator, orNone(one.leaders()),
		}}
		if v.problems {
			r.cells = append(r.cells, orNone(strings.Join(one.Problems, "; ")))
		} else {
			r.cells = append(r.cells, p.few(one.Delegated), p.few(one.Outside))
		}
		r.cells = append(r.cells, orNone(one.CoordinatorNode), p.ago(one.LeaderSaid),
			orNone(versions(slices.Collect(maps.Values(one.HubVersions)))), orNone(versions(one.CoordinatorVersions)))
		rows = append(rows, r)
	}
	return rows
}

// stateOfPool returns the word that decides the colour of a pool's line.
func stateOfPool(p *Pool) string {
	switch {
	case p.Coordinator != CoordinatorReady && p.Coordinator != CoordinatorNone && p.Coordinator != CoordinatorNew,
		p.Coordinator == CoordinatorReady && p.Leader == "":
		return StateSilent
	case len(p.Problems) > 0:
		return StateDelegated
	case p.Coordinator == CoordinatorNone:
		return StateConnected
	}
	return p.Coordinator
}

// few returns a list as text, shortened unless the output is wide.
func (p *printer) few(all []string) string {
	const few = 3
	if len(all) <= few || p.wide {
		return orNone(strings.Join(all, ","))
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few-1], ","), len(all)-few+1)
}

func (p *printer) explanation(e Explanation) error {
	if p.objects != nil {
		return p.object(result{kind: "NodeExplanation", name: e.Node, content: e, about: []about{aboutNode(e.Node)}})
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
	}{{"Evidence", e.Evidence}, {"History", e.History}} {
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

func (p *printer) items(name string, items []Item) error {
	rows := make([]row, len(items))
	for i, item := range items {
		at := p.ago(item.Since)
		if p.wide && item.Since != nil {
			at += " (" + item.Since.UTC().Format(time.RFC3339) + ")"
		}
		rows[i].cells = []any{item.What, at, item.Says}
	}
	p.nextTable()
	return p.table(head(name, "Since", "Says"), rows)
}

// leaders names the pool's leader, and those who lead in other slots.
func (p *Pool) leaders() string {
	text := p.Leader
	for _, other := range p.OtherLeaders {
		text += fmt.Sprintf(",%s/%d", other.Leader, other.Slot)
	}
	return text
}

func (p *printer) leader(of *Pool) error {
	if p.objects != nil {
		content := map[string]any{"leader": of.Leader, "said": of.LeaderSaid}
		if len(of.OtherLeaders) > 0 {
			content["others"] = of.OtherLeaders
		}
		return p.object(result{kind: "PoolLeader", name: of.Name, about: []about{aboutNode(of.Leader)}, content: content})
	}
	text := of.Leader
	if p.wide {
		text = of.leaders()
		text += "   reported " + p.ago(of.LeaderSaid)
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

func (p *printer) traffic(t PoolTraffic) error {
	if p.objects != nil {
		return p.object(result{kind: "PoolTraffic", name: t.Pool, content: t, about: []about{aboutPool(t.Pool)}})
	}
	show := bytesOf
	if p.wide {
		show = func(n uint64) string { return fmt.Sprint(n) }
	}
	var rows []row
	for _, n := range t.Nodes {
		rows = append(rows, row{"", []any{n.Node, show(n.Sent), show(n.Received), p.ago(&n.Since)}})
	}
	rows = append(rows, row{"", []any{"all", show(t.Total.Sent), show(t.Total.Received), ""}})
	return p.table(head("Node", "To cloud", "From cloud", "Counted since"), rows)
}

func (p *printer) findings(node string, all []Finding) error {
	if p.objects != nil {
		return p.object(result{kind: "NodeCheck", name: node, about: []about{aboutNode(node)},
			content: map[string]any{"ok": !failed(all), "findings": all}})
	}
	rows := make([]row, len(all))
	for i, f := range all {
		text := f.Why
		if f.Do != "" {
			text += ". To do: " + f.Do
		}
		rows[i] = row{f.Level, []any{f.Level, f.What, text}}
	}
	return p.table(head("Is", "What", "Says"), rows)
}

// find returns the pool of that name.
func find(pools []Pool, name string) *Pool {
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &pools[i]
}
