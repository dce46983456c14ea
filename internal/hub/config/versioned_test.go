package config

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/logs"
)

// fromFile parses a file of settings, as main does.
func fromFile(t *testing.T, content string, args ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var c Config
	fs := c.flagSet()
	err := flagfile.Parse(fs, append(args, "--config="+path), io.Discard, Versioned)
	c.Own = Given(fs)
	return c, err
}

// former is a file as join writes it, and now the same as a YurtHubConfiguration.
const former = `node-name: "n1"
server-addr: "https://10.0.0.1:6443,https://10.0.0.2:6443"
bootstrap-file: "/etc/yurthub/bootstrap-token"
nodepool-name: "p1"
enable-coordinator: "true"
cache-agents: "kubelet,coredns"
pool-scope-resources: [v1/services, apps.openyurt.io/v1beta2/nodepools]
remember-identities-for: 2h
max-requests-inflight: 300
disk-cache-path: ""
masterservice: false
v: 3
`

const now = `apiVersion: hub.openyurt.io/v1alpha1
bootstrapFile: /etc/yurthub/bootstrap-token
cacheAgents:
- kubelet
- coredns
diskCachePath: ""
enableCoordinator: true
kind: YurtHubConfiguration
masterservice: false
maxRequestsInflight: 300
nodeName: n1
nodepoolName: p1
poolScopeResources:
- v1/services
- apps.openyurt.io/v1beta2/nodepools
rememberIdentitiesFor: 2h0m0s
serverAddr:
- https://10.0.0.1:6443
- https://10.0.0.2:6443
verbosity: 3
`

func TestBothFormsOfTheFile(t *testing.T) {
	was, err := fromFile(t, former)
	if err != nil {
		t.Fatal(err)
	}
	is, err := fromFile(t, now)
	if err != nil || !reflect.DeepEqual(was, is) {
		t.Errorf("the two forms differ: %v\n%+v\n%+v", err, was, is)
	}
	if is.RememberIdentitiesFor != 2*time.Hour || is.DiskCachePath != "" || len(is.Own) != 5 ||
		is.Logs.Verbosity != 3 {
		t.Errorf("it is read as %+v", is)
	}
	if c, err := fromFile(t, now, "--node-name=n2", "--cache-agents=*"); err != nil || c.Node != "n2" ||
		!reflect.DeepEqual(c.CacheAgents, []string{"*"}) {
		t.Errorf("with flags: %v, %+v", err, c)
	}
}

func TestTheFileIsStrict(t *testing.T) {
	const head = "apiVersion: hub.openyurt.io/v1alpha1\nkind: YurtHubConfiguration\n"
	for name, tt := range map[string]struct{ file, want string }{
		"an unknown field":   {head + "nodeNames: n1\n", `unknown field "nodeNames"`},
		"a flag's name":      {head + "node-name: n1\n", `unknown field "node-name"`},
		"a field twice":      {head + "nodeName: a\nnodeName: b\n", `"nodeName" already set`},
		"another version":    {"apiVersion: hub.openyurt.io/v9\nkind: YurtHubConfiguration\n", "hub.openyurt.io/v9"},
		"another kind":       {"apiVersion: hub.openyurt.io/v1alpha1\nkind: Hub\n", `"Hub"`},
		"no kind":            {"apiVersion: hub.openyurt.io/v1alpha1\n", "Kind"},
		"a number for text":  {head + "nodeName: 5\n", "nodeName"},
		"text for a number":  {head + "port: many\n", "port"},
		"no duration":        {head + "rememberIdentitiesFor: soon\n", "soon"},
		"a value that isn't": {head + "openMetrics: 7\n", "openMetrics"},
		"no level":           {head + "verbosity: much\n", "verbosity"},
	} {
		if _, err := fromFile(t, tt.file); err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %s", name, err, tt.want)
		}
	}
}

// TestAWrongFileSaysHowToLog: of a file with a mistake, the rest is known, so that the mistake is told as the program logs.
func TestAWrongFileSaysHowToLog(t *testing.T) {
	for name, file := range map[string]string{
		"this form": "apiVersion: hub.openyurt.io/v1alpha1\nkind: YurtHubConfiguration\nloggingFormat: json\nnodeNames: n1\n",
		"of before": "bogus: x\nlogging-format: json\n",
	} {
		if c, err := fromFile(t, file); err == nil || c.Logs.Format != logs.JSON {
			t.Errorf("%s: %v, and it logs as %+v", name, err, c.Logs)
		}
	}
}

// fieldOf returns the names of a YurtHubConfiguration's fields by their letters.
func fieldOf() map[string]string {
	fields := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.YurtHubConfiguration]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !f.Anonymous {
			fields[letters(name)] = name
		}
	}
	return fields
}

// TestEachFlagHasItsField, and each field its flag.
func TestEachFlagHasItsField(t *testing.T) {
	fields := fieldOf()
	new(Config).flagSet().VisitAll(func(f *pflag.Flag) {
		if fields[letters(f.Name)] == "" && !f.Hidden {
			t.Errorf("no field is --%s", f.Name)
		}
		delete(fields, letters(f.Name))
	})
	delete(fields, letters("kind"))
	delete(fields, letters("apiVersion"))
	if len(fields) > 0 {
		t.Errorf("no flags are %v", fields)
	}
}
