package settings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// told is what a ConfigMap says.
func told(t *testing.T, generation int, s v1alpha1.HubSettings) map[string]string {
	t.Helper()
	content, err := v1alpha1.EncodeShared(s)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{edge.SettingsGeneration: fmt.Sprint(generation), edge.SettingsConfiguration: string(content)}
}

func agents(names ...string) v1alpha1.HubSettings { return v1alpha1.HubSettings{CacheAgents: names} }

func anything(v1alpha1.HubSettings) error { return nil }

func TestRead(t *testing.T) {
	good := told(t, 5, agents("a", "b"))
	said, err := Read(good, anything)
	if err != nil || said.Generation != 5 {
		t.Fatalf("%+v, %v", said, err)
	}
	if s, unknown, err := said.Settings(); err != nil || unknown != "" || !slices.Equal(s.CacheAgents, []string{"a", "b"}) {
		t.Errorf("%+v, %s, %v", s, unknown, err)
	}
	newer := strings.Replace(good[edge.SettingsConfiguration], "{", `{"profile":"metered",`, 1)
	said, err = Read(map[string]string{edge.SettingsGeneration: "6", edge.SettingsConfiguration: newer}, anything)
	if err != nil {
		t.Fatalf("of a newer controller nothing is taken: %v", err)
	}
	if s, unknown, err := said.Settings(); err != nil || !strings.Contains(unknown, "profile") || len(s.CacheAgents) != 2 {
		t.Errorf("of a newer controller: %+v, %q, %v", s, unknown, err)
	}
	for name, tt := range map[string]struct{ generation, configuration, want string }{
		"nothing":                 {"", "", "generation"},
		"no generation":           {"", good[edge.SettingsConfiguration], "generation"},
		"generation 0":            {"0", good[edge.SettingsConfiguration], "generation"},
		"no configuration":        {"5", "", ""},
		"no YAML":                 {"5", "{", ""},
		"another version":         {"5", strings.ReplaceAll(good[edge.SettingsConfiguration], "v1alpha1", "v2"), "v2"},
		"what only a node can be": {"5", strings.Replace(newer, `"profile":"metered"`, `"nodeName":"n1"`, 1), "only a node"},
	} {
		_, err := Read(map[string]string{
			edge.SettingsGeneration: tt.generation, edge.SettingsConfiguration: tt.configuration,
		}, anything)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Read(good, func(v1alpha1.HubSettings) error { return errors.New("no") }); err == nil {
		t.Error("what the hub cannot use is taken")
	}
}

func TestRecall(t *testing.T) {
	dir := t.TempDir()
	if said, err := Recall(dir, "p1"); err != nil || said != (Said{}) {
		t.Errorf("nothing is remembered: %+v, %v", said, err)
	}
	want, err := Read(told(t, 5, agents("a")), anything)
	if err != nil {
		t.Fatal(err)
	}
	content, err := encode("p1", want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := recall("p1", content); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := recall("p2", content); err == nil {
		t.Error("another pool's settings are taken")
	}
	if _, err := recall("p1", content[:20]); err == nil {
		t.Error("half a file is taken")
	}
}

// hub is who takes settings: "restart" among the agents takes one, "bad" is refused.
type hub struct {
	mu    sync.Mutex
	taken []string
}

func (h *hub) usable(s v1alpha1.HubSettings) error {
	if slices.Contains(s.CacheAgents, "bad") {
		return errors.New("bad is no agent")
	}
	return nil
}

func (h *hub) take(s v1alpha1.HubSettings) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = s.CacheAgents
	if slices.Contains(s.CacheAgents, "restart") {
		return []string{"cache-agents"}, nil
	}
	return nil, nil
}

func (h *hub) has() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.taken, " ")
}

// TestALife follows a pool's settings through changes, good and bad, and looks at what the cloud is told.
func TestALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := map[string]string{"a": "b"}
		cloud := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: own}})
		maps := cloud.CoreV1().ConfigMaps(edge.NamespaceSystem)
		var h hub
		metrics := prometheus.NewRegistry()
		var upgradable atomic.Bool
		s := New(Config{
			Node: "n1", Pool: "p1", ConfigMaps: maps, Nodes: cloud.CoreV1().Nodes(), Dir: t.TempDir(),
			Reachable: func(context.Context) error { return nil }, Usable: h.usable, Take: h.take, Metrics: metrics,
			Program: func() edge.HubProgram { return edge.HubProgram{Version: "v0.2.0", Upgradable: upgradable.Load()} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		expect := func(what, has, report string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			node, err := cloud.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := node.Annotations[edge.AnnotationSettings]; got != report || h.has() != has || node.Annotations["a"] != "b" {
				t.Errorf("%s: the hub has %q and reports %q, want %q and %q", what, h.has(), got, has, report)
			}
			program := edge.HubProgram{Version: "v0.2.0", Upgradable: upgradable.Load()}.String()
			if got := node.Annotations[edge.AnnotationProgram]; got != program && has+report != "" {
				t.Errorf("%s: the hub says that it is %q, want %q", what, got, program)
			}
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p1").SettingsConfigMap()}}
		say := func(generation int, names ...string) {
			t.Helper()
			m.Data = told(t, generation, agents(names...))
			if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expect("nobody has said anything", "", "")
		if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("an empty ConfigMap", "", `0/0/refused/generation is "", want a number above 0`)
		say(1)
		expect("no settings", "", "1/1//")
		say(2, "x", "y")
		expect("some", "x y", "2/2//")
		say(3, "bad")
		expect("bad ones", "x y", "2/3/refused/bad is no agent")
		const want = `
# HELP yurthub_settings_not_taken 1 while the hub does not run with its pool's newest settings, by the reason: restart, refused
# TYPE yurthub_settings_not_taken gauge
yurthub_settings_not_taken{reason="refused"} 1
yurthub_settings_not_taken{reason="restart"} 0
`
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "yurthub_settings_not_taken"); err != nil {
			t.Error(err)
		}
		say(2, "x", "y")
		expect("back as it was", "x y", "2/2//")
		say(5, "restart")
		expect("some that take a restart", "restart", "2/5/restart/cache-agents")
		say(6, "z")
		expect("good ones", "z", "6/6//")
		upgradable.Store(true)
		time.Sleep(lookPause)
		expect("join has prepared the node for upgrades", "z", "6/6//")
		if err := maps.Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("deleted", "", "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
