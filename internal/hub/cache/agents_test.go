package cache

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMatch(t *testing.T) {
	few, all := []string{"kubelet", "CoreDNS", " kube-proxy", ""}, []string{"kubelet", "*"}
	for _, tc := range []struct {
		name          string
		agents        []string
		agent, header string
		want          bool
	}{
		{"a program's name", few, "kubelet/v1.36.0 (linux/amd64) kubernetes/1234567", "", true},
		{"without a version", few, "kubelet", "", true},
		{"in capitals", few, "KUBELET/v1", "", true},
		{"listed in capitals", few, "coredns/1.12", "", true},
		{"listed after a space", few, "kube-proxy/v1.36.0", "", true},
		{"a longer name", few, "kubelet-like/v1", "", false},
		{"a name within", few, "x kubelet/v1", "", false},
		{"a name behind", few, "curl/8 kubelet/v1", "", false},
		{"another", few, "kubectl/v1.36.0", "", false},
		{"none", few, "", "", false},
		{"none, and a version", few, "/v1", "", false},
		{"all", all, "curl/8", "", true},
		{"all, without a name", all, "", "", true},
		{"none listed", nil, "kubelet/v1", "", false},
		{"by header", nil, "curl/8", "true", true},
		{"by header, as a number", nil, "curl/8", "1", true},
		{"by header, not", nil, "curl/8", "false", false},
		{"by header, nonsense", nil, "curl/8", "please", false},
		{"listed, and a header that says no", few, "kubelet/v1", "false", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			if tc.agent != "" {
				r.Header.Set("User-Agent", tc.agent)
			}
			if tc.header != "" {
				r.Header.Set("edge-cache", tc.header)
			}
			if got := NewAgents(tc.agents).Match(r); got != tc.want {
				t.Errorf("kept: %v, want %v", got, tc.want)
			}
			if r.Header.Get("Edge-Cache") != "" {
				t.Error("the hub's own header goes further")
			}
			if r.UserAgent() != tc.agent {
				t.Errorf("User-Agent is %q, was %q", r.UserAgent(), tc.agent)
			}
		})
	}
}
