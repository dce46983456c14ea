package links

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/bulk"
	"yurtcoordinator/internal/lab/line"
)

var busyScenarios = []kit.Scenario{
	{
		Name: "busy-line", Lab: busyPools, Run: busyLine,
		Doc: "A pool shares 1 Mbit/s behind a 512 KB queue while every node runs three downloads for two minutes; then " +
			"256 KB and one download each. No link is called down, no node is delegated or NotReady, and no heartbeat is " +
			"older than half the grace period. An equal pool without hubs runs beside it.",
	},
}

// busyPools has three nodes with hubs, and three without.
var busyPools = kit.Beside(lab.Config{Nodes: 3, Kubelet: lab.Hollow, NoProxy: true}, 3)

const (
	bulkPort = 9998
	busyRate = 1_000_000
	busyFor  = 2 * time.Minute
)

func busyLine(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	end := sendBulk(t)
	for _, c := range []struct {
		name        string
		queue       int
		connections int
	}{{"pull", 512 << 10, 3}, {"download", 256 << 10, 1}} {
		t.ShapeBoth(line.Shape{Rate: busyRate, Queue: c.queue}, true)
		t.Pool.Settled(30 * time.Second)
		t.Say("%d downloads at once on each node, for %v", c.connections, busyFor)
		on := t.WatchLines()
		got := fillLines(t, c.connections, busyFor)
		t.Figure(c.name+"_kbit", got[true]/1000)
		t.Figure(c.name+"_without_hub_kbit", got[false]/1000)
		for hubs, rate := range got {
			if rate < 0.8*busyRate {
				t.Fail("downloads had %.0f bit/s of the line (hubs: %v): it was not busy", rate, hubs)
			}
		}
		t.Hold(t.Config.Timing.Grace, "a grace period after the downloads")
		on.NothingHappened(c.name + "_")
	}
	end()
}

// sendBulk makes the cloud's machine send to whoever connects, until the returned function is called.
func sendBulk(t *kit.T) (end func()) {
	cmd, in, out := t.StartInside("cloud", bulk.Command, bulk.Order{Listen: fmt.Sprintf("%s:%d", cloudIP, bulkPort)})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fail("the cloud does not send: %w", errors.Join(err, in.Close(), cmd.Wait(), errors.New(fmt.Sprint(cmd.Stderr))))
	}
	return func() { t.Must(errors.Join(in.Close(), cmd.Wait())) }
}

// fillLines downloads on each node of both pools, and returns at how many bits a second in all: true with hubs, false without.
func fillLines(t *kit.T, connections int, d time.Duration) map[bool]float64 {
	order := bulk.Order{From: fmt.Sprintf("%s:%d", cloudIP, bulkPort), Connections: connections, For: d}
	nodes := t.Both()
	got := make([]bulk.Downloaded, len(nodes))
	parts := make([]func(*kit.T), len(nodes))
	for i, node := range nodes {
		parts[i] = func(t *kit.T) {
			cmd, in, out := t.StartInside(node, bulk.Command, order)
			t.Must(errors.Join(json.NewDecoder(out).Decode(&got[i]), in.Close(), cmd.Wait()))
		}
	}
	together(t, parts...)
	rates := map[bool]float64{}
	for i, node := range nodes {
		t.Say("%s got %d bytes, and %d connections broke", node, got[i].Bytes, got[i].Broken)
		rates[i < t.Config.Nodes] += float64(got[i].Bytes) * 8 / d.Seconds()
	}
	return rates
}
