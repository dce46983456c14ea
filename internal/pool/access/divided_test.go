package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestEachAuthoritySaysItsOwn: a certificate of the cluster's makes no operator, and one of the pool's makes no node.
func TestEachAuthoritySaysItsOwn(t *testing.T) {
	cluster, pools := pooltest.NewAuthority(t, "cluster"), pooltest.NewAuthority(t, "pool")
	var trusted cas
	trusted.trust(cluster, pools)
	file := pooltest.WriteFile(t, t.TempDir(), "pool-ca.crt", pools.Pem)
	by := func(a *pooltest.Authority, name string, groups ...string) *tls.ConnectionState {
		pair := a.Issue(t, pkix.Name{CommonName: name, Organization: groups}, time.Now().Add(time.Hour))
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.TLS(t).Leaf}}
	}
	all := []string{
		"system:nodes", edge.GroupOperators, edge.GroupDebuggers, edge.GroupViewers, edge.GroupMetrics,
		"openyurt:coordinators-not", "shop",
	}
	for _, c := range []struct {
		what string
		file string
		on   *tls.ConnectionState
		want []string // groups; nil means refused
	}{
		{"a developer of the cluster's", file, by(cluster, "eve", all...), []string{
			"openyurt:coordinators-not", "shop", "system:nodes",
		}},
		{"a node", file, by(cluster, "system:node:n1", "system:nodes"), []string{"system:nodes"}},
		{"an operator", file, by(pools, "alice", all...), []string{
			edge.GroupOperators, "openyurt:coordinators-not", edge.GroupDebuggers, edge.GroupViewers, edge.GroupMetrics, "shop",
		}},
		{"a node of the pool's authority", file, by(pools, "system:node:n2", "system:nodes"), nil},
		{"an operator while the file is missing", filepath.Join(t.TempDir(), "none"), by(pools, "alice", edge.GroupOperators),
			[]string{}},
		{"a file that is none", pooltest.WriteFile(t, t.TempDir(), "text", []byte("text")), by(cluster, "system:node:n1"), nil},
		{"without a file", "", by(cluster, "alice", edge.GroupOperators), []string{edge.GroupOperators}},
	} {
		response, ok, err := AtTheDoor(trusted.verify, c.file, ends.Clock{}).AuthenticateRequest(from(c.on))
		if c.want == nil {
			if ok || err == nil {
				t.Errorf("%s: recognized as %v", c.what, response.User)
			}
			continue
		}
		if err != nil || !ok {
			t.Errorf("%s: %v, %v", c.what, ok, err)
			continue
		}
		got := slices.DeleteFunc(slices.Sorted(slices.Values(response.User.GetGroups())), func(g string) bool {
			return g == "system:authenticated"
		})
		if slices.Sort(c.want); !slices.Equal(got, c.want) {
			t.Errorf("%s: groups %q, want %q", c.what, got, c.want)
		}
	}
}
