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
	// membersEvery is how often the file of the pool's nodes is read: a mounted Secret is replaced by a link, which
	// file notification may miss.
	membersEvery = 2 * time.Second
	// maxMembersFile bounds it, in bytes: as much as a Secret may have.
	maxMembersFile = 1 << 20
)

// Members knows which nodes belong to the pool. One authority signs the nodes of all pools, so a certificate says who a
// node is, but not to which pool it belongs.
type Members struct {
	file  string // empty means that every node belongs to the pool
	clock clock.WithTicker
	nodes nodeidentifier.NodeIdentifier
	known atomic.Pointer[sets.Set[edge.NodeName]] // nil until the file was first read
}

// NewMembers returns the Members of a file that names one node per line. An empty name means that all nodes are
// members.
func NewMembers(file string, c clock.WithTicker) *Members {
	return &Members{file: file, clock: c, nodes: nodeidentifier.NewDefaultNodeIdentifier()}
}

// Has reports whether a node belongs to the pool, by the file as last read. No node does before the first read.
func (m *Members) Has(n edge.NodeName) bool {
	if m.file == "" {
		return true
	}
	known := m.known.Load()
	return known != nil && known.Has(n)
}

// Authorize implements authorizer.Authorizer. It refuses nodes of other pools everything.
func (m *Members) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	n, isNode := m.nodes.NodeIdentity(a.GetUser())
	switch {
	case !isNode || m.Has(edge.NodeName(n)):
		return authorizer.DecisionNoOpinion, "", nil
	case m.known.Load() == nil:
		return authorizer.DecisionDeny, "this coordinator does not know yet which nodes belong to its pool", nil
	default:
		return authorizer.DecisionDeny, fmt.Sprintf("node %q does not belong to this pool, as far as this coordinator knows: "+
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
			klog.FromContext(ctx).Error(err, "Can't read which nodes belong to the pool; the last known ones stay")
		case err == nil:
			complaint = ""
			if news {
				klog.FromContext(ctx).Info("Read the pool's nodes", "nodes", m.known.Load().Len())
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
			return false, fmt.Errorf("--pool-nodes-file %s: %q is not a valid Node name; give one name per line",
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
