package access

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
)

// Members knows which nodes belong to the pool. One authority signs the nodes of all pools, so a certificate says who a
// node is, but not to which pool it belongs.
type Members struct {
	list  list
	nodes nodeidentifier.NodeIdentifier
}

// NewMembers returns the Members of a file that names one node per line. An empty name means that all nodes are
// members.
func NewMembers(file string) *Members {
	return &Members{
		list:  list{flag: "pool-nodes-file", file: file, bad: badNodeName},
		nodes: nodeidentifier.NewDefaultNodeIdentifier(),
	}
}

func badNodeName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errNotNodeName
	}
	return nil
}

// Has reports whether a node belongs to the pool, by the file as last read. No node does before the first read.
func (m *Members) Has(n edge.NodeName) bool { return m.list.file == "" || m.list.has(string(n)) }

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
