package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/logs"
)

func nothing(Config) {}

// TestRememberedSettings: a hub starts with what the pool said last, unless it cannot.
func TestRememberedSettings(t *testing.T) {
	keep := func(c Config, content string) Config {
		if err := os.WriteFile(filepath.Join(c.CertDir, "settings.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return c
	}
	const configuration = `"{\"apiVersion\":\"hub.openyurt.io/v1alpha1\",\"kind\":\"YurtHubConfiguration\",` +
		`\"cacheAgents\":[\"*\"],\"loggingFormat\":\"json\",\"verbosity\":4}"`
	const good = `{"pool":"p1","generation":7,"configuration":` + configuration + `}`
	f, report := Recall(keep(nodeOf(t), good), nothing)
	if starts := f.Starts(); !slices.Equal(starts.CacheAgents, []string{"*"}) || len(f.said.CacheAgents) != 1 ||
		report != (edge.SettingsReport{Runs: 7, Told: 7}) {
		t.Errorf("it starts with %v, %+v", starts.CacheAgents, report)
	}
	if l := LogsFrom(keep(nodeOf(t, "-v=2"), good)); l.Format != logs.JSON || l.Verbosity != 2 {
		t.Errorf("it logs as %+v", l)
	}
	unusable := strings.ReplaceAll(strings.ReplaceAll(good, "cacheAgents", "poolScopeResources"), "*", "nothing")
	for name, content := range map[string]string{
		"another pool's": strings.Replace(good, "p1", "p2", 1), "half a file": good[:40],
		"what it can't use": unusable,
	} {
		c := keep(nodeOf(t), content)
		f, report := Recall(c, nothing)
		if starts := f.Starts(); !reflect.DeepEqual(starts, c) || report.Runs != 0 {
			t.Errorf("%s: it starts with %+v, %+v", name, starts, report)
		}
		if l := LogsFrom(c); l.Format != logs.Text || l.Verbosity != 0 {
			t.Errorf("%s: it logs as %+v", name, l)
		}
		if refused := report.State == edge.SettingsRefused; refused != (name == "what it can't use") {
			t.Errorf("%s: it reports %+v", name, report)
		}
	}
	if _, err := os.Stat(nodeOf(t).CertDir + "/settings.json"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestInForce: the pool's settings apply while the hub runs. The node's own settings take precedence, and may change meanwhile.
// Unusable settings change nothing.
func TestInForce(t *testing.T) {
	dir := t.TempDir()
	node := func(more ...string) Config { return nodeOf(t, append([]string{"--cert-dir=" + dir}, more...)...) }
	var now Config
	applied := 0
	f, report := Recall(node(), func(c Config) { now, applied = c, applied+1 })
	if report != (edge.SettingsReport{}) || f.LinkProfile() != v1alpha1.LinkNormal || len(f.Kept()) > 0 {
		t.Fatalf("with nothing said: %+v, %s, %v", report, f.LinkProfile(), f.Kept())
	}
	no := false
	said := v1alpha1.HubSettings{
		CacheAgents: []string{"mine"}, OwnObjects: &no, LinkProfile: v1alpha1.LinkMetered, Verbosity: ptr.To[int32](5),
	}
	bad := v1alpha1.HubSettings{CacheAgents: []string{"x"}, PoolScopeResources: []string{"a/v1/b", "a/v2/b"}}
	type running struct {
		agents    []string
		judged    link.Timing
		metered   bool
		borrows   upstream.Use
		verbosity logsapi.VerbosityLevel
	}
	metered := running{[]string{"mine"}, link.Metered(), true, upstream.ForSome, 5}
	for _, step := range []struct {
		name    string
		do      func() ([]string, error)
		restart []string
		want    running
		kept    []string
	}{
		{"the pool speaks", func() ([]string, error) { return f.Take(said) }, []string{"own-objects"}, metered, nil},
		{"the node's own beats it", func() ([]string, error) {
			return nil, f.Change(node("--link-profile=satellite", "--cache-agents=own", "-v=2"))
		}, nil, running{[]string{"own"}, link.Satellite(), false, upstream.ForAll, 2},
			[]string{"cache-agents", "link-profile", "v"}},
		{"the node is silent again", func() ([]string, error) { return nil, f.Change(node()) }, nil, metered, nil},
		{"the pool takes it back", func() ([]string, error) { return f.Take(v1alpha1.HubSettings{}) }, nil,
			running{flags(t).CacheAgents, link.Standard(), false, upstream.ForAll, 0}, nil},
	} {
		before := applied
		restart, err := step.do()
		if err != nil || !slices.Equal(restart, step.restart) || applied != before+1 {
			t.Errorf("%s: restart for %v, %v; told %d times", step.name, restart, err, applied-before)
		}
		got := running{now.CacheAgents, now.Judged(), now.Metered(), now.Borrows(), now.Logs.Verbosity}
		if !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: the hub is to run with %+v, want %+v", step.name, got, step.want)
		}
		if !slices.Equal(f.Kept(), step.kept) {
			t.Errorf("%s: the node keeps to its own in %v, want %v", step.name, f.Kept(), step.kept)
		}
		was := applied
		if _, err := f.Take(bad); err == nil || applied != was {
			t.Errorf("%s: half of what cannot be used is taken: %v", step.name, err)
		}
		if err := f.Usable(bad); err == nil || applied != was {
			t.Errorf("%s: what cannot be used can be used", step.name)
		}
	}
	if f.Usable(said) != nil || f.LinkProfile() != v1alpha1.LinkNormal {
		t.Errorf("who asks whether something can be used changes something: the link is now %s", f.LinkProfile())
	}
}

// TestTheNodesSettingsChange: of the node's own, only what can change while a hub runs is taken.
func TestTheNodesSettingsChange(t *testing.T) {
	dir := t.TempDir()
	node := func(more ...string) Config { return nodeOf(t, append([]string{"--cert-dir=" + dir}, more...)...) }
	var now Config
	f, _ := Recall(node(), func(c Config) { now = c })
	for _, tt := range []struct {
		more string
		want string // part of the error; empty: there is none
	}{
		{"--pool-scope-resources=v1/services", ""},
		{"--pool-scope-resources=services", "want GROUP/VERSION/RESOURCE"},
		{"--disk-cache-clock-offset=720h", ""},
		{"--port=10000", "restart it for the other settings"},
		{"--logging-format=json", "restart it for the other settings"},
		{"--node-name=", "--node-name is required"},
	} {
		err := f.Change(node(tt.more))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.more, err, tt.want)
		}
	}
	if shared := flags(t).PoolScopeResources; now.DiskCacheClockOffset != 720*time.Hour ||
		!slices.Equal(now.PoolScopeResources, shared) {
		t.Errorf("the hub is to run with %+v", now)
	}
}

// TestBorrows: what a neighbour's line is used for, by what is said of it and by the node's own link.
func TestBorrows(t *testing.T) {
	for _, tc := range []struct {
		relay   v1alpha1.Relay
		profile v1alpha1.LinkProfile
		want    upstream.Use
	}{
		{"", v1alpha1.LinkNormal, upstream.ForAll},
		{"", v1alpha1.LinkSatellite, upstream.ForAll},
		{"", v1alpha1.LinkMetered, upstream.ForSome},
		{v1alpha1.RelayControl, v1alpha1.LinkMetered, upstream.ForAll},
		{v1alpha1.RelayHeartbeats, v1alpha1.LinkNormal, upstream.ForSome},
		{v1alpha1.RelayOff, v1alpha1.LinkNormal, upstream.ForNothing},
	} {
		c := Config{Relay: tc.relay, LinkProfile: tc.profile}
		if got := c.Borrows(); got != tc.want {
			t.Errorf("relay %q on a link %q: %v", tc.relay, tc.profile, got)
		}
	}
	for _, wrong := range [][2]string{{"--relay", "all"}, {"--link-profile", "radio"}, {"--link-profile", ""}} {
		c := nodeOf(t, wrong[0]+"="+wrong[1])
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), wrong[0]) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
