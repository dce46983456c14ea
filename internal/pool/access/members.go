package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
)

// Members knows which nodes belong to the pool. One authority signs the nodes of all pools, so a certificate says which node a
// caller is, but not which pool it belongs to.
//
// The list of nodes comes through the coordinator's own node, which may be cut off for days. Therefore the leader can also add
// nodes (Word), until the list changes. The leader can't undo a removal: a node that the list once named and no longer names
// stays out.
type Members struct {
	list  list
	word  func() Word
	nodes nodeidentifier.NodeIdentifier

	mu      sync.Mutex
	removed sets.Set[string] // were listed, and are no longer
	ended   string           // the word that was there when the list was last read
}

// Word is what the leader says about the pool's nodes.
type Word struct {
	ID    string // differs from that of another word; empty if there is none
	Nodes []string
}

// NewMembers returns Members that read a file with one node per line. The function word returns what the leader says; see Word.
// An empty file name means that all nodes are members.
func NewMembers(file string, word func() Word) *Members {
	m := &Members{word: word, nodes: nodeidentifier.NewDefaultNodeIdentifier(), removed: sets.New[string]()}
	m.list = list{flag: "pool-nodes-file", file: file, bad: badNodeName, replaces: m.replace}
	return m
}

// replace is called before another list counts.
func (m *Members) replace(was, is sets.Set[string]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed, m.ended = m.removed.Union(was).Difference(is), m.word().ID
}

// Expected reports whether a caller is a node of any pool, or in an operators' group. The authorizer decides whether the node is
// of this pool, and whether the caller is denied.
func Expected(caller user.Info) bool {
	return isNodes(caller) || slices.ContainsFunc(caller.GetGroups(), func(group string) bool {
		return group == edge.GroupOperators || strings.HasPrefix(group, edge.GroupOperators+":")
	})
}

func badNodeName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errNotNodeName
	}
	return nil
}

// Has reports whether the file, as last read, or the leader's Word names a node. Without a file, all nodes belong to the pool.
// Before the file is first read, none does.
func (m *Members) Has(n edge.NodeName) bool {
	return m.list.file == "" || m.list.has(string(n)) || m.list.known() && m.added(string(n))
}

// Lists reports whether the file or the leader's word names a node. Without a file nothing does.
func (m *Members) Lists(n edge.NodeName) bool { return m.list.file != "" && m.Has(n) }

// added reports whether the leader's word adds a node.
func (m *Members) added(n string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed.Has(n) {
		return false
	}
	w := m.word()
	return w.ID != m.ended && slices.Contains(w.Nodes, n)
}

// Authorize implements authorizer.Authorizer. It refuses nodes of other pools everything.
func (m *Members) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	n, isNode := m.nodes.NodeIdentity(a.GetUser())
	switch {
	case !isNode || m.Has(edge.NodeName(n)):
		return authorizer.DecisionNoOpinion, "", nil
	case !m.list.known():
		return authorizer.DecisionDeny, "this coordinator does not know yet which nodes belong to its pool", nil
	default:
		return authorizer.DecisionDeny, fmt.Sprintf("node %q does not belong to this pool, as far as this coordinator knows: "+
			"see the Node's label %s", n, edge.LabelNodePool), nil
	}
}

// Run follows the file until ctx ends. It calls changed after each change.
func (m *Members) Run(ctx context.Context, changed func(context.Context)) error {
	return m.list.run(ctx, changed)
}

// Read reads the file and reports whether its nodes have changed.
func (m *Members) Read() (news bool, err error) { return m.list.read() }
