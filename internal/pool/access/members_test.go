package access

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

func TestMembers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMembers(file)
	decides := func(name, group string, want authorizer.Decision, says string) {
		t.Helper()
		who := &user.DefaultInfo{Name: name, Groups: []string{group}}
		got, why, err := m.Authorize(t.Context(), authorizer.AttributesRecord{User: who})
		if got != want || err != nil || !strings.Contains(why, says) {
			t.Errorf("%s: %v %q %v, want %v %q", name, got, why, err, want, says)
		}
	}
	news := func(want bool, wantErr string) {
		t.Helper()
		got, err := m.Read()
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("news %v, %v, want %v %q", got, err, want, wantErr)
		}
	}
	const no, deny = authorizer.DecisionNoOpinion, authorizer.DecisionDeny
	news(false, "no such file")
	decides("system:node:n1", edge.GroupNodes, deny, "does not know yet")
	decides("openyurt:operator:p1", "openyurt:coordinators", no, "")
	write("n1\n  n2 \n\n")
	news(true, "")
	news(false, "")
	decides("system:node:n1", edge.GroupNodes, no, "")
	decides("system:node:n2", edge.GroupNodes, no, "")
	decides("system:node:n3", edge.GroupNodes, deny, "does not belong to this pool")
	for text, says := range map[string]string{
		"n1\nn2 n3\n": "not a valid Node name", "N1": "not a valid Node name",
		strings.Repeat("n1\n", maxListFile): "longer than",
	} {
		write(text)
		news(false, says)
		decides("system:node:n2", edge.GroupNodes, no, "") // as before
	}
	write("n2\nn1")
	news(false, "")
	write("")
	news(true, "")
	decides("system:node:n1", edge.GroupNodes, deny, "does not belong to this pool")
	m = NewMembers("")
	decides("system:node:n1", edge.GroupNodes, no, "")
}

func TestMembersAreFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	synctest.Test(t, func(t *testing.T) {
		m := NewMembers(file)
		ctx, cancel := context.WithCancel(t.Context())
		calls, ended := 0, make(chan error)
		go func() { ended <- m.Run(ctx, func(context.Context) { calls++ }) }()
		synctest.Wait() // else it may see a file that is only half written
		for i, text := range []string{"n1", "n1\nn2", "n1\nn2\n", "n2"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * listEvery) // in the bubble
			synctest.Wait()
			if want := []int{1, 2, 2, 3}[i]; calls != want {
				t.Errorf("after %q: told %d times, want %d", text, calls, want)
			}
		}
		cancel()
		if err := errors.Join(<-ended, m.Run(ctx, nil)); err != nil {
			t.Error(err)
		}
	})
}
