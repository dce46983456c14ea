package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/logs/logstest"
)

func TestMain(m *testing.M) { logstest.Main(m, main) }

// TestVerbosity: -v shows the requests, and none of what they carry, however much is asked for.
func TestVerbosity(t *testing.T) {
	const hidden, token = "kubeconfig-with-a-key", "token-of-an-operator"
	encoded := base64.StdEncoding.EncodeToString([]byte(hidden))
	path := "/api/v1/namespaces/kube-system/secrets/" + edge.PoolName("p1").KubeconfigSecret()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"kubeconfig":%q}}`, encoded)
	}))
	defer server.Close()
	for _, tt := range []struct {
		args            []string
		request, header bool
	}{
		{nil, false, false},
		{[]string{"-v=5"}, false, false},
		{[]string{"-v=6"}, true, false},
		{[]string{"--v=7"}, true, true},
		{[]string{"-v", "9"}, true, true},
		{[]string{"-v=99"}, true, true},
	} {
		args := []string{"kubeconfig", "p1", "--kubeconfig=/dev/null", "--server=" + server.URL, "--token=" + token}
		p := logstest.Start(t, append(args, tt.args...)...)
		if err := p.Wait(); err != nil || p.Out() != hidden {
			t.Fatalf("%v: %v, %q\n%s", tt.args, err, p.Out(), p.Log())
		}
		log := p.Log()
		if strings.Contains(log, path) != tt.request || strings.Contains(log, "Accept") != tt.header {
			t.Errorf("%v: want the request %t, and its headers %t:\n%s", tt.args, tt.request, tt.header, log)
		}
		for _, secret := range []string{hidden, encoded, token} {
			if strings.Contains(log, secret) {
				t.Errorf("%v: %s is in the log:\n%s", tt.args, secret, log)
			}
		}
	}
	if log := logstest.Ends(t, "status", "-v=much"); !strings.HasPrefix(log, "error: ") || !strings.Contains(log, "much") {
		t.Errorf("a level that is none: %s", log)
	}
}
