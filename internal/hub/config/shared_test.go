package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/hub/v1alpha1"
)

// everything is what a pool can say, each otherwise than by default.
func everything() v1alpha1.HubSettings {
	yes, no := true, false
	return v1alpha1.HubSettings{
		PoolScopeResources: []string{"v1/services"}, CacheAgents: []string{"*"}, OwnObjects: &no, OwnSecrets: &yes,
		Masterservice: &yes, RememberIdentitiesFor: &metav1.Duration{Duration: time.Hour},
		LinkProfile: v1alpha1.LinkMetered, Relay: v1alpha1.RelayOff, LoggingFormat: "json", Verbosity: ptr.To[int32](4),
	}
}

// nodeOf returns a node's settings, as they are with these flags.
func nodeOf(t *testing.T, args ...string) Config {
	t.Helper()
	var c Config
	fs := c.flagSet()
	args = append([]string{
		"--node-name=n1", "--nodepool-name=p1", "--bootstrap-file=token", "--server-addr=https://10.0.0.1:6443",
		"--cert-dir=" + t.TempDir(),
	}, args...)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	c.Own = Given(fs)
	return c
}

// TestEachSharedSettingIsTaken: none of a HubSettings' fields is forgotten.
func TestEachSharedSettingIsTaken(t *testing.T) {
	said := everything()
	fields, err := v1alpha1.Fields(said)
	if err != nil || len(fields) != reflect.TypeFor[v1alpha1.HubSettings]().NumField() || len(fields) != len(sharedSettings) {
		t.Fatalf("%d fields are set, %d are in the table, %v", len(fields), len(sharedSettings), err)
	}
	before, after := nodeOf(t), nodeOf(t).under(said)
	for _, s := range sharedSettings {
		if reflect.DeepEqual(s.field(&before), s.field(&after)) || !reflect.DeepEqual(s.field(&after), s.said(&said)) {
			t.Errorf("--%s is %v", s.flag, reflect.ValueOf(s.field(&after)).Elem())
		}
	}
	if none := before.under(v1alpha1.HubSettings{}); !reflect.DeepEqual(none, before) {
		t.Errorf("a pool that says nothing changes %+v", none)
	}
}

// TestTheNodesOwnWins, even if it gives what is the default.
func TestTheNodesOwnWins(t *testing.T) {
	said := everything()
	c := nodeOf(t, "--own-secrets=false", "--cache-agents=kubelet,coredns")
	got := c.under(said)
	if got.OwnSecrets || !slices.Equal(got.CacheAgents, []string{"kubelet", "coredns"}) {
		t.Errorf("the pool's word beats the node's: %+v", got)
	}
	if got.OwnObjects || got.RememberIdentitiesFor != time.Hour {
		t.Errorf("the pool's word does not count where the node says nothing: %+v", got)
	}
	if kept := c.kept(said); !slices.Equal(kept, []string{"cache-agents", "own-secrets"}) {
		t.Errorf("the node keeps to its own in %v", kept)
	}
	said.CacheAgents = []string{"kubelet", "coredns"}
	if kept := c.kept(said); !slices.Equal(kept, []string{"own-secrets"}) {
		t.Errorf("the node keeps to its own in %v, though both say the same", kept)
	}
}

func TestWhatNeedsARestart(t *testing.T) {
	c := nodeOf(t)
	want := []string{"logging-format", "own-objects", "own-secrets", "masterservice"}
	if got := c.needRestart(c.under(everything())); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	running := v1alpha1.HubSettings{PoolScopeResources: []string{"v1/services"}, CacheAgents: []string{"*"}}
	if got := c.needRestart(c.under(running)); len(got) > 0 {
		t.Errorf("%v need a restart", got)
	}
}

// TestUsable: what a pool says is looked at together with what the node says.
func TestUsable(t *testing.T) {
	yes := true
	twice := v1alpha1.HubSettings{PoolScopeResources: []string{"a/v1/b", "a/v2/b"}}
	for name, tt := range map[string]struct {
		node []string
		said v1alpha1.HubSettings
		want string
	}{
		"nothing":                {nil, v1alpha1.HubSettings{}, ""},
		"a resource twice":       {nil, twice, "given twice"},
		"… which the node gives": {[]string{"--pool-scope-resources=v1/services"}, twice, ""},
		"Pods served nowhere":    {nil, v1alpha1.HubSettings{Masterservice: &yes}, "--secure-bind-address"},
		"Pods served":            {[]string{"--secure-bind-address=10.0.0.7"}, v1alpha1.HubSettings{Masterservice: &yes}, ""},
		"no kind of relaying":    {nil, v1alpha1.HubSettings{Relay: "all"}, "want Off, Heartbeats or"},
		"no kind of link":        {nil, v1alpha1.HubSettings{LinkProfile: "cheap"}, "want normal, metered or"},
		"… or the node's own":    {[]string{"--link-profile=satellite"}, v1alpha1.HubSettings{LinkProfile: "cheap"}, ""},
		"no form of a log":       {nil, v1alpha1.HubSettings{LoggingFormat: "xml"}, "want text or json"},
		"less than no time": {nil, v1alpha1.HubSettings{RememberIdentitiesFor: &metav1.Duration{Duration: -1}},
			"--remember-identities-for"},
	} {
		err := nodeOf(t, tt.node...).usable(tt.said)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestMayBecome(t *testing.T) {
	c := nodeOf(t)
	to := c
	to.PoolScopeResources, to.CacheAgents, to.Own = []string{"v1/services"}, []string{"*"}, []string{"cache-agents"}
	if err := c.mayBecome(to); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"another node": func(c *Config) { c.Node = "n2" }, "another port": func(c *Config) { c.Port++ },
		"Secrets": func(c *Config) { c.OwnSecrets = !c.OwnSecrets },
	} {
		to := c
		change(&to)
		if err := c.mayBecome(to); err == nil || !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
