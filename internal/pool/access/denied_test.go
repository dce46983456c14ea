package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

func TestDenied(t *testing.T) {
	digest := fingerprintPrefix + strings.Repeat("0a", 32)
	shows := func(name, id string, groups ...string) user.Info {
		return &user.DefaultInfo{Name: name, Groups: groups, Extra: map[string][]string{user.CredentialIDKey: {id}}}
	}
	alice := shows("alice", digest, edge.GroupOperators)
	anew := shows("alice", fingerprintPrefix+strings.Repeat("0b", 32), edge.GroupOperators)
	n1 := shows("system:node:n1", fingerprintPrefix+strings.Repeat("0c", 32), edge.GroupNodes)
	self := shows("system:apiserver", "", user.SystemPrivilegedGroup)
	// Who is asked about by a review has shown no certificate.
	asked := &user.DefaultInfo{Name: "openyurt:setup", Groups: []string{edge.GroupOperators}}

	file := filepath.Join(t.TempDir(), "denied")
	d := NewDenied(file)
	decides := func(what string, who user.Info, says string) {
		t.Helper()
		got, why, err := d.Authorize(t.Context(), authorizer.AttributesRecord{User: who})
		want := authorizer.DecisionNoOpinion
		if says != "" {
			want = authorizer.DecisionDeny
		}
		if got != want || err != nil || !strings.Contains(why, says) {
			t.Errorf("%s: %v %q %v, want %v %q", what, got, why, err, want, says)
		}
	}
	reads := func(text string, wantErr string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.Read()
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q: %v, want %q", text, err, wantErr)
		}
	}

	if _, err := d.Read(); err == nil {
		t.Error("read what does not exist")
	}
	decides("an operator, before the list", alice, "does not know yet")
	decides("a node, before the list", n1, "")
	decides("the process itself", self, "")
	decides("a review, before the list", asked, "")
	decides("nobody", nil, "")

	reads("", "")
	decides("an operator", alice, "")
	reads("bob\n"+digest+"\n", "")
	decides("the certificate", alice, "this certificate was withdrawn")
	decides("the next certificate", anew, "")
	reads("alice\nsystem:apiserver\nsystem:node:n1\nopenyurt:setup", "")
	decides("the name", anew, "the certificates of this user were withdrawn")
	decides("a node by its name", n1, "the certificates of this user were withdrawn")
	decides("a review about a name", asked, "the certificates of this user were withdrawn")
	decides("the process itself, named", self, "")

	for text, says := range map[string]string{
		fingerprintPrefix + "0a":                     "is not X509SHA256= and",
		strings.ToUpper(digest):                      "", // a name like any other
		fingerprintPrefix + strings.Repeat("0A", 32): "lower-case",
		strings.Repeat("a", maxDeniedItem+1):         "longer than 256 bytes",
	} {
		reads("alice", "")
		reads(text, says)
		if says != "" {
			decides("after a bad line", anew, "were withdrawn")
		}
	}

	d = NewDenied("")
	decides("without a list", alice, "")
}
