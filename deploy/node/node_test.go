package node

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// directives are those of a unit, by name. A name that occurs again has its values in one text.
func directives(unit string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(unit) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		if before, again := all[name]; again {
			value = before + "; " + value
		}
		all[name] = value
	}
	return all
}

// TestTheUpgradeIsHeldAsTheHubIs: what reads deliveries of others as root is held as the hub is, but for what upgrading needs.
func TestTheUpgradeIsHeldAsTheHubIs(t *testing.T) {
	// What a unit does, and not what it may.
	does := []string{
		"Description", "Before", "After", "Type", "ExecStart", "Restart", "RestartSec", "WatchdogSec", "TimeoutStartSec",
		"TimeoutStopSec", "TimeoutAbortSec", "LimitNOFILE", "OOMScoreAdjust", "StateDirectory", "StateDirectoryMode",
	}
	want := directives(Unit)
	want["CapabilityBoundingSet"] = "CAP_DAC_OVERRIDE"               // the inbox is another user's
	want["ReadWritePaths"] = "@PLACE@ /etc/yurthub /var/lib/yurthub" // the program, its keys and floor, the journal
	delete(want, "ProtectProc")                                      // it looks for kubelet
	has := directives(Upgrade)
	for _, all := range []map[string]string{want, has} {
		maps.DeleteFunc(all, func(name, _ string) bool { return slices.Contains(does, name) })
	}
	if len(want) < 25 {
		t.Fatalf("the hub's unit has %d directives that limit it; something is wrong with this test", len(want))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if has[name] != want[name] {
			t.Errorf("%s=%s, want %s", name, has[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, also := want[name]; !also {
			t.Errorf("%s=%s is not in the hub's unit", name, has[name])
		}
	}
}

// TestTheUpgradeIsTriedForEver: nobody is there to start it by hand, and what repeats has a pause.
func TestTheUpgradeIsTriedForEver(t *testing.T) {
	has := directives(Upgrade)
	for name, want := range map[string]string{
		"StartLimitIntervalSec": "0", "Restart": "on-failure", "RestartSec": "3s", "Type": "oneshot",
		"WantedBy":  "multi-user.target",
		"ExecStart": "@SETTLED@ upgrade --binary=@BINARY@ --config=/etc/yurthub/config.yaml",
	} {
		if has[name] != want {
			t.Errorf("%s=%s, want %s", name, has[name], want)
		}
	}
}
