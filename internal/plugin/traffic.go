package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
)

// PoolTraffic is what the links of a pool's nodes to the cloud have carried, by their hubs' count.
type PoolTraffic struct {
	Pool string `json:"pool"`
	// Said is the time of the leader's last report to the cloud; nil if a coordinator was asked.
	Said  *time.Time    `json:"said,omitempty"`
	Nodes []NodeTraffic `json:"nodes"`
	// Total is the sum over all nodes that report, each since its own start.
	Total struct {
		Sent     uint64 `json:"sentBytes"`
		Received uint64 `json:"receivedBytes"`
	} `json:"total"`
}

// NodeTraffic is what one node's link has carried.
type NodeTraffic struct {
	Node string `json:"node"`
	edge.Traffic
}

// TrafficOf returns a pool's traffic. It has no nodes if nobody reports any.
func TrafficOf(o Objects, pool string, now time.Time) PoolTraffic {
	said := map[edge.NodeName]edge.Traffic{}
	p := PoolTraffic{Pool: pool, Nodes: []NodeTraffic{}}
	if o.Within != "" {
		for name, lease := range o.Leases {
			if t, ok := edge.ParseTraffic(lease.Annotations[edge.AnnotationTraffic]); ok {
				said[edge.NodeName(name)] = t
			}
		}
	} else if reports, _ := reportsOf(o, pool, now); len(reports) > 0 {
		said = reports.Traffic()
		p.Said = renewed(reports[0])
	}
	for name, t := range said {
		p.Nodes = append(p.Nodes, NodeTraffic{string(name), t})
		p.Total.Sent += t.Sent
		p.Total.Received += t.Received
	}
	slices.SortFunc(p.Nodes, func(a, b NodeTraffic) int { return cmp.Compare(a.Node, b.Node) })
	return p
}

func renewed(l *coordinationv1.Lease) *time.Time {
	if l.Spec.RenewTime == nil {
		return nil
	}
	return &l.Spec.RenewTime.Time
}

func (c *commands) traffic() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "traffic POOL",
		Short:             "How much the links of a pool's nodes to the cloud have carried",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completePools,
	}
	flags := addPrinting(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, r, err := c.prepare(flags)
		if err != nil {
			return err
		}
		t, err := r.Traffic(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return p.traffic(t)
	}
	return cmd
}

// Traffic reads what is reported about a pool's links.
func (r *Reader) Traffic(ctx context.Context, pool string) (PoolTraffic, error) {
	p, o, err := r.pool(ctx, pool)
	if err != nil {
		return PoolTraffic{}, err
	}
	t := TrafficOf(o, pool, time.Now())
	if len(t.Nodes) == 0 {
		return t, fmt.Errorf("no hub reports what the links of pool %s carry; its coordinator: %s. Hubs report to their "+
			"coordinator, and the leader reports to the cloud every few minutes", pool, p.Coordinator)
	}
	return t, nil
}

// bytesOf formats a number of bytes with at least three digits.
func bytesOf(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v := float64(n)
	for len(units) > 1 && v >= 1024 {
		v, units = v/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.*f %s", max(0, 3-len(fmt.Sprintf("%.0f", v))), v, units[0])
}
