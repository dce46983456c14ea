package lead

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	// silentFor is how long a coordinator may send nothing before the hub ends the stream. A coordinator sends a line at least
	// every 10 s, and a leader that hears nothing gives up after 15 s (package heartbeat). openFor bounds the wait for the first
	// line, which a coordinator on the LAN sends at once.
	silentFor, openFor = 13 * time.Second, 5 * time.Second
	// maxLine bounds a line in bytes: enough for 20,000 Pods of some 250 bytes.
	maxLine = 8 << 20
	// maxBeats bounds how many nodes' Leases a State keeps, and maxBeat the size of each in bytes, because a coordinator may send
	// anything. maxBeats is more than two for each node of the largest pool, and maxBeat twice what an honest Lease takes.
	maxBeats, maxBeat = 4096, 32 << 10
	// pauseMin and pauseMax bound the pause after a failure (run.Backoff). They are short because the election depends on the
	// stream, so a hub must soon notice that a coordinator is back.
	pauseMin, pauseMax = 100 * time.Millisecond, 2 * time.Second
)

var (
	errUnreachable = errors.New("the coordinator can no longer be reached")
	errOtherwise   = errors.New("the coordinator is asked for something else")
	errQuiet       = errors.New("the coordinator tells nothing")
)

// StateConfig configures a State. All fields are required.
type StateConfig struct {
	// Link is the state of the link to the coordinator. Transport reaches the coordinator with the node's credentials, and Base
	// is the coordinator's address.
	Link      *live.Value[link.State]
	Transport http.RoundTripper
	Base      *url.URL
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// State follows what one coordinator tells of its pool (edge.PathState). Make one with NewState.
type State struct {
	config             StateConfig
	election, declared *live.Value[Sighting]
	listener           *live.Value[*listener]

	mu       sync.Mutex
	position string // of heartbeats
	// began is when the coordinator began to send heartbeats, and heard when it last did, by the running clock; zero means never.
	began, heard time.Time
	// heartbeats are nil while this hub is not told of them.
	heartbeats map[string]Heartbeat
	sinks      []LeaseSink
}

// Heartbeat is a node's Lease. It must not be changed.
type Heartbeat struct {
	Lease coordinationv1.Lease
	// Changed is when it was last seen to change, by the running clock. Zero means that it has not changed since it was found.
	Changed time.Time
}

// Sighting is a Lease as a coordinator has told of it. It must not be changed.
type Sighting struct {
	// Known says that the coordinator has told of the Lease since this hub last reached the coordinator.
	Known bool
	// Lease is nil if there is none.
	Lease *coordinationv1.Lease
	// Found says that the coordinator has sent all Leases, as when a stream begins. Nobody saw then when this one was written.
	Found bool
}

// LeaseSink receives the nodes' heartbeats. A State calls one method at a time, and waits until it returns. The methods must
// not change the Leases.
type LeaseSink interface {
	// Baseline replaces all that is known: these Leases exist, but the time of their last write is unknown.
	Baseline(leases []coordinationv1.Lease)
	// Changed reports a change that was seen to happen.
	Changed(lease *coordinationv1.Lease)
}

// listener is who follows Pods and nodes.
type listener struct {
	asks string // of edge.QueryPresence
	hear func(edge.State)
}

// NewState returns a State. It does no I/O.
func NewState(c StateConfig) *State {
	return &State{
		config: c, election: &live.Value[Sighting]{}, declared: &live.Value[Sighting]{}, listener: &live.Value[*listener]{},
	}
}

// Election returns the election Lease, now and as it changes.
func (s *State) Election() *live.Value[Sighting] { return s.election }

// Declared returns the Lease by which the leader declares what is current, now and as it changes.
func (s *State) Declared() *live.Value[Sighting] { return s.declared }

// Presence passes what the coordinator tells of nodes to the function hear, until ctx ends. If pods is true, hear also gets what
// the coordinator tells of Pods. Only one call may be active at a time.
func (s *State) Presence(ctx context.Context, pods bool, hear func(edge.State)) {
	asks := edge.NodesOnly
	if pods {
		asks = edge.NodesAndPods
	}
	s.listener.Set(&listener{asks, func(line edge.State) {
		if ctx.Err() == nil {
			hear(line)
		}
	}})
	<-ctx.Done()
	s.listener.Set(nil)
}

// Heartbeats passes on the nodes' heartbeats until ctx ends. The coordinator tells of them while this hub leads there.
func (s *State) Heartbeats(ctx context.Context, to LeaseSink) {
	s.mu.Lock()
	s.sinks = append(s.sinks, to)
	if s.heartbeats != nil {
		to.Baseline(s.leasesLocked())
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sinks = slices.DeleteFunc(s.sinks, func(other LeaseSink) bool { return other == to })
}

// Beats returns the heartbeats that the coordinator has sent, by name, and since when it sends them; zero means that it sends
// none.
func (s *State) Beats() (all []Heartbeat, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heartbeats == nil {
		return nil, time.Time{}
	}
	return s.allLocked(), s.began
}

// Hears reports whether a node was seen to renew at the coordinator within a time.
func (s *State) Hears(node edge.NodeName, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.heartbeats[string(node)].Changed
	return !changed.IsZero() && s.config.Ends.Since(changed) < within
}

// Heard returns when the coordinator last told of heartbeats, or that there are none, by the running clock.
func (s *State) Heard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// Run follows the coordinator while it can be reached, until ctx ends, and returns nil.
func (s *State) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := s.config.Link.Wait(ctx, link.State.Answers); err != nil {
			break
		}
		reachable, stop := s.config.Link.While(ctx, link.State.Answers, errUnreachable)
		s.follow(reachable)
		stop()
		s.election.Set(Sighting{})
		s.declared.Set(Sighting{})
	}
	return nil //nolint:nilerr // only the context ends the wait
}

// follow reads streams until ctx ends.
func (s *State) follow(ctx context.Context) {
	pause, logged := run.Backoff{Min: pauseMin, Max: pauseMax}, ""
	for ctx.Err() == nil {
		l := s.listener.Get()
		while, stop := s.listener.While(ctx, func(now *listener) bool { return now == l }, errOtherwise)
		err := s.stream(while, l, pause.Reset)
		stop()
		if errors.Is(err, errOtherwise) {
			continue
		}
		if text := err.Error(); ctx.Err() == nil && text != logged {
			logged = text
			klog.FromContext(ctx).V(1).Info("The pool's state is not told now, trying again", "err", err)
		}
		_ = run.Pause(ctx, pause.Next(s.config.Ends.Float64())) // the loop ends with ctx
	}
}

// stream reads one stream, and returns why it ended.
func (s *State) stream(ctx context.Context, l *listener, heard func()) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(openFor, func() { stop(errQuiet) })
	defer silence.Stop()
	response, err := s.open(ctx, l)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		silence.Reset(silentFor)
		var line edge.State
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("not what a coordinator says: %w", err)
		}
		heard()
		s.receive(line)
		if l != nil {
			l.hear(line)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (s *State) open(ctx context.Context, l *listener) (*http.Response, error) {
	at, query := s.config.Base.JoinPath(edge.PathState), url.Values{}
	if l != nil {
		query.Set(edge.QueryPresence, l.asks)
	}
	s.mu.Lock()
	if s.heartbeats != nil {
		query.Set(edge.QueryAfter, s.position)
	}
	s.mu.Unlock()
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	response, err := s.config.Transport.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // it only explains
	return nil, fmt.Errorf("the coordinator answers %d: %.200q", response.StatusCode, text)
}

// receive takes in what a line says of Leases.
func (s *State) receive(line edge.State) {
	if line.Leases != nil {
		sight(s.election, edge.LeaseElection, line.Leases)
		sight(s.declared, edge.LeaseInformerSync, line.Leases)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := line.Heartbeats
	if all == nil {
		s.heartbeats = nil
		return
	}
	now, before := s.config.Ends.Running(), s.heartbeats
	s.heard, s.position = now, all.Position
	anew := all.Whole || before == nil
	if anew {
		s.heartbeats = map[string]Heartbeat{}
	}
	if before == nil {
		s.began = now
	}
	var kept []coordinationv1.Lease
	for _, lease := range all.Leases {
		if _, has := s.heartbeats[lease.Name]; !has && len(s.heartbeats) >= maxBeats || lease.Size() > maxBeat {
			continue
		}
		kept = append(kept, lease)
		is := Heartbeat{lease, now}
		was, known := before[lease.Name]
		if same := known && was.Lease.ResourceVersion == lease.ResourceVersion; before == nil || anew && same {
			is.Changed = was.Changed
		}
		s.heartbeats[lease.Name] = is
	}
	for _, to := range s.sinks {
		if anew {
			to.Baseline(s.leasesLocked())
			continue
		}
		for i := range kept {
			to.Changed(&kept[i])
		}
	}
}

// allLocked returns all heartbeats, by name.
func (s *State) allLocked() []Heartbeat {
	return slices.SortedFunc(maps.Values(s.heartbeats), func(a, b Heartbeat) int {
		return strings.Compare(a.Lease.Name, b.Lease.Name)
	})
}

// leasesLocked returns them without their times.
func (s *State) leasesLocked() (all []coordinationv1.Lease) {
	for _, h := range s.allLocked() {
		all = append(all, h.Lease)
	}
	return all
}

// sight sets what is known of the Lease with a name.
func sight(is *live.Value[Sighting], name string, all *edge.Leases) {
	if i := slices.IndexFunc(all.Leases, func(l coordinationv1.Lease) bool { return l.Name == name }); i >= 0 {
		is.Set(Sighting{Known: true, Lease: &all.Leases[i], Found: all.Whole})
	} else if all.Whole {
		is.Set(Sighting{Known: true, Found: true})
	}
}
