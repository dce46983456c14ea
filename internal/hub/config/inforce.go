package config

import (
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/settings"
	"yurtcoordinator/internal/logs"
)

// InForce is the configuration that a hub runs with: the node's own settings, and the pool's where the node has none. Make one
// with Recall. It is safe for concurrent use.
type InForce struct {
	starts Config
	apply  func(Config)

	mu   sync.Mutex
	own  Config               // the node's own
	said v1alpha1.HubSettings // what the pool says
}

// Recall returns the configuration that a hub starts with: the node's own settings, with the pool's last settings as defaults if
// this node can use them. The report says whether it can. The InForce calls the function apply with valid settings when those of
// the running hub must change. That function must not use the InForce.
func Recall(own Config, apply func(Config)) (*InForce, edge.SettingsReport) {
	f := &InForce{starts: own, apply: apply, own: own}
	if own.Pool == "" {
		return f, edge.SettingsReport{}
	}
	what, said, err := recalled(own)
	if err != nil {
		klog.Background().Error(err, "Cannot read what the pool said last: the hub starts with the node's own settings")
		return f, edge.SettingsReport{}
	}
	if err := own.usable(said); err != nil {
		klog.Background().Error(err, "Cannot use what the pool said last: the hub starts with the node's own settings",
			"generation", what.Generation)
		return f, edge.SettingsReport{Told: what.Generation, State: edge.SettingsRefused, Why: err.Error()}
	}
	f.starts, f.said = own.under(said), said
	return f, edge.SettingsReport{Runs: what.Generation, Told: what.Generation}
}

// recalled returns the last settings of a node's pool, from the disk.
func recalled(own Config) (what settings.Said, said v1alpha1.HubSettings, err error) {
	if what, err = settings.Recall(own.CertDir, own.Pool); err == nil {
		said, _, err = what.Settings()
	}
	return what, said, err
}

// LogsFrom returns the log settings with which a hub starts, as Recall finds them. It logs nothing, so a program can call it
// before its logs are set up.
func LogsFrom(own Config) logs.Settings {
	if own.Pool == "" {
		return own.Logs
	}
	_, said, err := recalled(own)
	if err != nil || own.usable(said) != nil {
		return own.Logs
	}
	return own.under(said).Logs
}

// Starts returns the settings with which the hub starts.
func (f *InForce) Starts() Config { return f.starts }

// Usable returns an error if the hub can't run with a pool's settings. It changes nothing.
func (f *InForce) Usable(said v1alpha1.HubSettings) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own.usable(said)
}

// Take makes the hub run with the pool's settings, and returns the flags that take effect only at the next start.
func (f *InForce) Take(said v1alpha1.HubSettings) (restart []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(f.own, said)
}

// Change makes the hub run with the node's new own settings. Only settings that can change while a hub runs, and
// DiskCacheClockOffset for tests, may differ from the present ones. If own is not valid or differs in anything else, Change
// returns an error and changes nothing.
func (f *InForce) Change(own Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := own.Validate(); err != nil {
		return err
	}
	if err := f.own.mayBecome(own); err != nil {
		return err
	}
	_, err := f.takeLocked(own, f.said)
	return err
}

// takeLocked applies the node's and the pool's settings to the running hub, as far as they can change while it runs.
func (f *InForce) takeLocked(own Config, said v1alpha1.HubSettings) (restart []string, err error) {
	to := own.under(said)
	if err := to.Validate(); err != nil {
		return nil, fmt.Errorf("the node's and the pool's settings together: %w", err)
	}
	f.own, f.said = own, said
	f.apply(to)
	return f.starts.needRestart(to), nil
}

// LinkProfile returns the LinkProfile in force.
func (f *InForce) LinkProfile() v1alpha1.LinkProfile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own.under(f.said).LinkProfile
}

// Kept returns the flags for which the node's own setting overrides the pool's.
func (f *InForce) Kept() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own.kept(f.said)
}
