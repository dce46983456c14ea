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
	m := NewMembers(file, noWord)
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
	m = NewMembers("", noWord)
	decides("system:node:n1", edge.GroupNodes, no, "")
}

func noWord() Word { return Word{} }

// TestTheLeadersWordAdds, and takes nobody in whom the list has named and names no longer.
func TestTheLeadersWordAdds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	var word Word
	m := NewMembers(file, func() Word { return word })
	for _, step := range []struct {
		list, id, word string // an empty list: as before
		want           string
	}{
		{id: "1", word: "n1 n2", want: ""}, // nothing was read: a leader can't found a pool
		{list: "n1 n2", id: "1", word: "n1 n2 n3", want: "n1 n2"},
		{id: "2", word: "n1 n3", want: "n1 n2 n3"}, // it takes nobody away
		{id: "3", word: "n4", want: "n1 n2 n4"},
		{list: "n1 n3", want: "n1 n3"}, // ends with the next list
		{id: "3", word: "n4 n5", want: "n1 n3"},
		{id: "4", word: "n2 n4", want: "n1 n3 n4"}, // n2 was taken off the list
		{list: "n1", want: "n1"},
		{id: "5", word: "n1 n2 n3 n4", want: "n1 n4"},
		{list: "n1 n2", want: "n1 n2"}, // n2 came back
		{id: "6", word: "n3 n4", want: "n1 n2 n4"},
	} {
		if step.list != "" {
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(step.list, " ", "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Read(); err != nil {
				t.Fatal(err)
			}
		}
		if step.id != "" {
			word = Word{ID: step.id, Nodes: strings.Fields(step.word)}
		}
		var got []string
		for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
			if m.Has(edge.NodeName(n)) {
				got = append(got, n)
			}
		}
		if s := strings.Join(got, " "); s != step.want {
			t.Errorf("%+v: the pool has %q", step, s)
		}
	}
}

func TestMembersAreFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	synctest.Test(t, func(t *testing.T) {
		m := NewMembers(file, noWord)
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
