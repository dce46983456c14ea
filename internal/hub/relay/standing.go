package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// lookEvery is how often open tunnels are judged anew. If the cloud says that a node has left the pool, the node's tunnels end
// within that time.
const lookEvery = time.Minute

var (
	errWithdrawn = errors.New("the certificate of this neighbour was withdrawn: see spec.deniedUsers of the YurtCoordinator")
	errNoMember  = errors.New("the cloud does not count this neighbour among the pool's nodes: see the status of the NodePool")
)

// word is what the cloud has last said of the pool's nodes. Nil nodes mean that it has not said anything yet.
type word struct{ nodes []edge.NodeName }

// refuses returns why a neighbour with a certificate may not borrow this hub's line; nil means that it may. Only the cloud's last
// word decides. So a coordinator that is away, or that lies, can refuse nobody.
func (s *Server) refuses(peer edge.NodeName, certificate []byte, of *word) error {
	sum := sha256.Sum256(certificate)
	for _, who := range s.cfg.Denied() {
		switch who {
		case peer.User(), peer.HubUser(), edge.CertificateIDPrefix + hex.EncodeToString(sum[:]):
			return errWithdrawn
		}
	}
	if of.nodes != nil && !slices.Contains(of.nodes, peer) {
		return errNoMember
	}
	return nil
}

// Run ends the tunnels of neighbours that may not borrow any more. It ends with ctx, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	for run.Pause(ctx, lookEvery) == nil {
		if open, _ := s.use.count(); open > 0 {
			s.word.Set(&word{s.lastWord().nodes}) // a new one, because somebody may have been denied
		}
	}
	return nil
}

// lastWord returns the cloud's last list of the pool's nodes. If the list is new, open tunnels are judged by it. A list without
// this hub's own node is unusable, because it says nothing about others either. The list before it then still counts.
func (s *Server) lastWord() *word {
	before, nodes := s.word.Get(), s.cfg.Nodes()
	if !slices.Contains(nodes, s.cfg.Node) || slices.Equal(nodes, before.nodes) {
		return before
	}
	now := &word{nodes}
	s.word.Set(now)
	return now
}
