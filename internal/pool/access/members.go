package access

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

const (
	// membersEvery is how often the file of the pool's nodes is read: a mounted Secret is replaced by a link, which a look
	// sees and notification may not.
	membersEvery = 2 * time.Second
	// maxMembersFile bounds it, in bytes: as much as a Secret may have.
	maxMembersFile = 1 << 20
)

// Members knows which nodes are of the pool. One authority signs the nodes of all pools, so that a certificate says who a node
// is, and not where.
type Members struct {
	file  string // empty means that every node is of the pool
	clock clock.WithTicker
	nodes nodeidentifier.NodeIdentifier
	known atomic.Pointer[sets.Set[edge.NodeName]] // nil means that the file was not read yet
}

// NewMembers returns what knows the nodes that file names, one on each line. An empty name means that all nodes are members.
func NewMembers(file string, c clock.WithTicker) *Members {
	return &Members{file: file, clock: c, nodes: nodeidentifier.NewDefaultNodeIdentifier()}
}

// Has reports whether a node is of the pool, by what the file said last. Before the file was read, none is.
func (m *Members) Has(n edge.NodeName) bool {
	if m.file == "" {
		return true
	}
	known := m.known.Load()
	return known != nil && known.Has(n)
}

// Authorize implements authorizer.Authorizer: it refuses nodes of other pools whatever they want.
func (m *Members) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	n, isNode := m.nodes.NodeIdentity(a.GetUser())
	switch {
	case !isNode || m.Has(edge.NodeName(n)):
		return authorizer.DecisionNoOpinion, "", nil
	case m.known.Load() == nil:
		return authorizer.DecisionDeny, "this coordinator has not been told yet which nodes are of its pool", nil
	default:
		return authorizer.DecisionDeny, fmt.Sprintf("node %q is not of this pool, as far as this coordinator has been told: "+
			"see the Node's label %s", n, edge.LabelNodePool), nil
	}
}

// Run follows the file until ctx ends. It calls changed after each change.
func (m *Members) Run(ctx context.Context, changed func(context.Context)) error {
	if m.file == "" {
		<-ctx.Done()
		return nil
	}
	ticker := m.clock.NewTicker(membersEvery)
	defer ticker.Stop()
	complaint := ""
	for {
		switch news, err := m.Read(); {
		case err != nil && err.Error() != complaint:
			complaint = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot read which nodes are of the pool; going on with what was known")
		case err == nil:
			complaint = ""
			if news {
				klog.FromContext(ctx).Info("The pool's nodes are known", "nodes", m.known.Load().Len())
				changed(ctx)
			}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// Read reads the file and reports whether its nodes have changed.
func (m *Members) Read() (news bool, err error) {
	info, err := os.Stat(m.file)
	if err != nil {
		return false, fmt.Errorf("--pool-nodes-file: %w", err)
	}
	if info.Size() > maxMembersFile {
		return false, fmt.Errorf("--pool-nodes-file %s: longer than %d bytes", m.file, maxMembersFile)
	}
	content, err := os.ReadFile(m.file)
	if err != nil {
		return false, fmt.Errorf("--pool-nodes-file: %w", err)
	}
	next := sets.New[edge.NodeName]()
	for line := range bytes.Lines(content) {
		name := strings.TrimSpace(string(line))
		if name == "" {
			continue
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return false, fmt.Errorf("--pool-nodes-file %s: %q is not a name that a Node can have; give one on each line",
				m.file, name)
		}
		next.Insert(edge.NodeName(name))
	}
	if known := m.known.Load(); known != nil && known.Equal(next) {
		return false, nil
	}
	m.known.Store(&next)
	return true, nil
}
