package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

const (
	// askEvery is how old the cloud's word about the pool's nodes may become while neighbours borrow. A node that is gone from
	// the pool is refused within askEvery + askAgain + openTimeout.
	askEvery = 8 * time.Minute
	// askAgain is the least time between two questions, and how often open tunnels are judged anew. It doubles, up to askEvery,
	// each time that the cloud still does not know a neighbour: a node that is gone may ask for weeks. Meanwhile one that joins
	// waits as long.
	askAgain = time.Minute
	// maxNodePool bounds a NodePool, in bytes.
	maxNodePool = 4 << 20
)

var (
	errWithdrawn = errors.New("the certificate of this neighbour was withdrawn: see spec.deniedUsers of the YurtCoordinator")
	errNoMember  = errors.New("the cloud does not count this neighbour among the pool's nodes: see the status of the NodePool")
)

// word is what the cloud has last said of the pool's nodes. Nil nodes mean that it has not said anything yet.
type word struct{ nodes []edge.NodeName }

// refuses returns why a neighbour with a certificate may not borrow this hub's line; nil means that it may. Only the cloud
// decides, over that line: a coordinator that is away, or that lies, refuses nobody.
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

// Run asks the cloud which nodes the pool has, while neighbours borrow, and ends the tunnels of those that may not any more. The
// cloud's last word counts until it says something else. Run ends with ctx, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	look := time.NewTicker(askAgain)
	defer look.Stop()
	var tried, asked time.Time // by the running clock; zero means never
	pause := askAgain
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if n, _ := s.use.count(); n == 0 && !s.unknown.Load() {
				continue
			}
			s.word.Set(&word{s.word.Get().nodes}) // somebody may have been denied
		case <-s.wanted:
		}
		now := s.cfg.Clock.Running()
		due := asked.IsZero() || now.Sub(asked) >= askEvery || s.unknown.Load()
		if !due || !tried.IsZero() && now.Sub(tried) < pause || s.cfg.Link.Get() != link.Up {
			continue
		}
		tried = now
		nodes, err := s.members(ctx)
		if err != nil {
			pause = askAgain
			klog.FromContext(ctx).Info("The cloud does not say which nodes the pool has; its last word counts", "err", err)
			continue
		}
		asked = now
		if s.unknown.Swap(false) && slices.Equal(nodes, s.word.Get().nodes) {
			pause = min(2*pause, askEvery)
		} else {
			pause = askAgain
		}
		s.word.Set(&word{nodes})
	}
}

// members asks the cloud which nodes the pool has. A list without this hub's own node says nothing about others either.
func (s *Server) members(ctx context.Context) ([]edge.NodeName, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	nodes, err := s.cfg.Nodes(ctx)
	if err == nil && !slices.Contains(nodes, s.cfg.Node) {
		err = fmt.Errorf("the NodePool's status has %d nodes, and this one is not among them", len(nodes))
	}
	return nodes, err
}

// asks lets Run ask the cloud, if it is time to.
func (s *Server) asks() {
	select {
	case s.wanted <- struct{}{}:
	default: // it will
	}
}

// nodesOf returns a function that asks the cloud at a URL, as this node, which nodes a pool has.
func nodesOf(pool edge.PoolName, cloud string, asNode http.RoundTripper) func(context.Context) ([]edge.NodeName, error) {
	is := edge.NodePools
	at := fmt.Sprintf("%s/apis/%s/%s/%s/%s", cloud, is.Group, is.Version, is.Resource, pool)
	client := http.Client{Transport: asNode}
	return func(ctx context.Context) ([]edge.NodeName, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", at, answer.Status)
		}
		var found struct {
			Status struct {
				Nodes []edge.NodeName `json:"nodes"`
			} `json:"status"`
		}
		if err := json.NewDecoder(io.LimitReader(answer.Body, maxNodePool)).Decode(&found); err != nil {
			return nil, fmt.Errorf("NodePool %s: %w", pool, err)
		}
		return found.Status.Nodes, nil
	}
}
