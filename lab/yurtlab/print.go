package yurtlab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/wire"
)

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", `json; empty prints text for people`)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "" && *output != "json" {
			return fmt.Errorf("--output %q: must be json or empty", *output)
		}
		return nil
	}
}

// printAs prints v as the -o flag says: as JSON, or for people with table.
func printAs(w io.Writer, output string, v any, table func(io.Writer) error) error {
	if output != "json" {
		return table(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printJSONLine prints v as one line.
func printJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

func statusTable(w io.Writer, s lab.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPOOL\tROLE\tCLOUD LINK\tWAN\tLAN\tREADY\tTAINT\tHEARTBEAT\tBY\tWAN UP\tWAN DOWN\tDEAD")
	for _, n := range s.Nodes {
		role, link := "-", "-"
		if n.Hub != nil {
			role, link = n.Hub.Role, n.Hub.Cloud
		}
		row := []string{
			n.Name, n.Pool, role, link, fault(n.WAN, n.WANLine), fault(n.LAN, n.LANLine), ready(n.Ready),
			orDash(string(n.Taint)), age(n.HeartbeatAge), orDash(n.HeartbeatBy), bytes(n.Traffic.Up),
			bytes(n.Traffic.Down), orDash(dead(n)),
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

func trafficTable(w io.Writer, all map[string]wire.Bytes) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "NODE\tUP\tDOWN\t")
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var sum wire.Bytes
	for _, name := range names {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", name, bytes(all[name].Up), bytes(all[name].Down))
		sum = sum.Add(all[name])
	}
	fmt.Fprintf(t, "all\t%s\t%s\t\n", bytes(sum.Up), bytes(sum.Down))
	return t.Flush()
}

// dead names the programs that were started on the node and no longer run.
func dead(n lab.NodeStatus) string {
	if !n.Power {
		return "no power"
	}
	out := ""
	for _, p := range n.Processes {
		switch {
		case p.State == "exited" && p.End != "exit status 0":
			out += " " + p.Name
		case p.State == "paused":
			out += " " + p.Name + "(paused)"
		}
	}
	if out == "" {
		return ""
	}
	return out[1:]
}

func fault(name string, on *lab.LineStatus) string {
	switch {
	case name != wire.None.String():
		return "CUT(" + name + ")"
	case on != nil:
		return "shaped"
	}
	return "ok"
}

func ready(status string) string {
	switch status {
	case "True":
		return "Ready"
	case "":
		return "-"
	}
	return "NotReady"
}

func orDash(s string) string { return cmp.Or(s, "-") }

func age(seconds float64) string {
	if seconds < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0fs ago", seconds)
}

func bytes(n uint64) string {
	switch {
	case n >= 10e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 10e3:
		return fmt.Sprintf("%.1f KB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
