package edge

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// SettingsConfigMap is the name of the ConfigMap, in NamespaceSystem, with a pool's settings for its hubs. The pool's nodes may
// read it; nodes of other pools may not.
func (p PoolName) SettingsConfigMap() string { return "yurthub-settings-" + string(p) }

// Keys of that ConfigMap.
const (
	// SettingsGeneration is a number that grows with each change.
	SettingsGeneration = "generation"
	// SettingsConfiguration is a YurtHubConfiguration with the pool's settings.
	SettingsConfiguration = "configuration"
	// SettingsFrom names, for people, the PoolSettings that the settings are made of, with their generations.
	SettingsFrom = "from"
)

// AnnotationSettings on a Node is the SettingsReport.String of the node's hub.
const AnnotationSettings = "openyurt.io/hub-settings"

// SettingsState is why a hub does not run with its pool's newest settings. Empty means that it does.
type SettingsState string

// Values of SettingsState.
const (
	// SettingsTaken means that the hub runs with the newest settings.
	SettingsTaken SettingsState = ""
	// SettingsNeedRestart means that some settings take effect only when the hub restarts.
	SettingsNeedRestart SettingsState = "restart"
	// SettingsRefused means that the hub cannot use the newest settings, and continues with the former ones.
	SettingsRefused SettingsState = "refused"
)

// maxSettingsWhy bounds SettingsReport.Why, in bytes.
const maxSettingsWhy = 200

// SettingsReport is what a hub says about its pool's settings. It can be compared.
type SettingsReport struct {
	// Told is the newest generation that the hub has received, Runs the one that it runs with; 0 means none.
	Told  int64         `json:"generation"`
	Runs  int64         `json:"running"`
	State SettingsState `json:"state,omitempty"`
	// Why explains State: the flags that take effect at the hub's next start, or why it cannot use the settings.
	Why string `json:"why,omitempty"`
}

// String returns "RUNS/TOLD/STATE/WHY". ParseSettingsReport reads it.
func (r SettingsReport) String() string {
	why := strings.ToValidUTF8(r.Why[:min(len(r.Why), maxSettingsWhy)], "")
	return fmt.Sprintf("%d/%d/%s/%s", r.Runs, r.Told, r.State, why)
}

// ParseSettingsReport reads what String wrote. Any program of the node may have written it, so the result is bounded.
func ParseSettingsReport(text string) (r SettingsReport, err error) {
	parts := strings.SplitN(text, "/", 4)
	if len(parts) != 4 {
		return SettingsReport{}, fmt.Errorf("%.40q has no four parts", text)
	}
	runs, err := strconv.ParseUint(parts[0], 10, 63)
	told, err2 := strconv.ParseUint(parts[1], 10, 63)
	if err := errors.Join(err, err2); err != nil {
		return SettingsReport{}, fmt.Errorf("%.40q does not begin with two generations: %w", text, err)
	}
	r.Runs, r.Told = int64(runs), int64(told)
	switch r.State = SettingsState(parts[2]); r.State {
	case SettingsTaken, SettingsNeedRestart, SettingsRefused:
	default:
		return SettingsReport{}, fmt.Errorf("%.40q is no state", parts[2])
	}
	r.Why = strings.ToValidUTF8(parts[3][:min(len(parts[3]), maxSettingsWhy)], "")
	return r, nil
}
