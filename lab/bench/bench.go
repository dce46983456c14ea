package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/machine"
)

// LoadCommand is the argument that makes yurtlab call Main on a node's network.
const LoadCommand = "bench-load"

// Lab returns the lab to measure in. Its nodes run only hubs, so that no other program sends the hubs requests.
func Lab(name string) lab.Config {
	return lab.Config{
		Name: name, Pools: 1, Nodes: 3, Kubelet: lab.Hollow, NoKubelet: true, NoProxy: true, Timing: lab.Stock,
	}
}

// Config is what Run needs.
type Config struct {
	// Lab is a running lab with the configuration of the function Lab.
	Lab *lab.Client
	// Program is the file of the calling program, which must call Main when its first argument is LoadCommand.
	Program string
	// Proxy is the file of Caddy's program.
	Proxy string
	// Profile also takes profiles of a hub.
	Profile bool
	// Progress is called with each step.
	Progress func(string)
}

const (
	// startsMeasured is how many starts of the coordinator are measured.
	startsMeasured = 5
	// loadTimeout and restTimeout bound the two parts of the run; they take about 90 and 5 s.
	loadTimeout = 4 * time.Minute
	restTimeout = time.Minute
)

// Run measures and returns the report. It fails only if the measuring does.
func Run(ctx context.Context, c Config) (Report, error) {
	node, host, err := c.ready(ctx)
	if err != nil {
		return Report{}, err
	}
	loading, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	m, err := c.load(loading, node, Spec{Profile: c.Profile})
	if err != nil {
		return Report{}, fmt.Errorf("load on %s: %w", node, err)
	}
	c.Progress("restarting the coordinator")
	starts, err := c.restarts(ctx, host)
	if err != nil {
		return Report{}, fmt.Errorf("coordinator on %s: %w", host, err)
	}
	place, err := c.restartHubs(ctx, host)
	if err != nil {
		return Report{}, fmt.Errorf("restart the hubs: %w", err)
	}
	if m.Shared, err = c.shared(ctx, place); err != nil {
		return Report{}, fmt.Errorf("pool resources, on %s: %w", place.follower, err)
	}
	return newReport(m, starts), nil
}

// restarts restarts the coordinator startsMeasured times.
func (c Config) restarts(ctx context.Context, host string) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	var starts []time.Duration
	for range startsMeasured {
		took, err := c.restart(ctx, host)
		if err != nil {
			return nil, err
		}
		starts = append(starts, took)
	}
	return starts, nil
}

// ready waits until every hub has found its role. It returns the node to measure on, which runs nothing but a hub, and the host
// of the coordinator.
func (c Config) ready(ctx context.Context) (node, host string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		s, err := c.Lab.Status(ctx)
		if err != nil {
			return "", "", err
		}
		settled := 0
		for _, n := range s.Nodes {
			if n.Hub != nil && n.Hub.Cloud == "up" && n.Hub.Coordinator == "up" && n.Hub.Leader != "" {
				settled++
			}
			if runs(n.Processes, lab.Coordinator) {
				host = n.Name
			} else {
				node = n.Name
			}
		}
		if settled == len(s.Nodes) && node != "" && host != "" {
			return node, host, nil
		}
		if err := run.Pause(ctx, 100*time.Millisecond); err != nil {
			return "", "", fmt.Errorf("%d of %d hubs have found their leader: %w", settled, len(s.Nodes), err)
		}
	}
}

func runs(all []machine.Process, c lab.Component) bool {
	for _, p := range all {
		if p.Name == string(c) {
			return true
		}
	}
	return false
}

// load runs Load on the node. It fills in the node's name and its servers' addresses.
func (c Config) load(ctx context.Context, node string, spec Spec) (Measured, error) {
	spec.Node, spec.Proxy = node, c.Proxy
	spec.HubHealth = fmt.Sprintf("http://127.0.0.1:%d", edge.PortHubHealth)
	asNode, err := c.Lab.CloudConfigAs(node)
	if err != nil {
		return Measured{}, err
	}
	asAdmin, err := c.Lab.CloudConfig()
	if err != nil {
		return Measured{}, err
	}
	asKubelet, err := c.Lab.HubConfig(node)
	if err != nil {
		return Measured{}, err
	}
	spec.AsNode, spec.AsAdmin, spec.AsKubelet = accessOf(asNode), accessOf(asAdmin), accessOf(asKubelet)
	token, err := os.ReadFile(asKubelet.BearerTokenFile)
	if err != nil {
		return Measured{}, err
	}
	spec.AsKubelet.Token = string(token)
	input, err := json.Marshal(spec)
	if err != nil {
		return Measured{}, err
	}
	cmd, err := c.Lab.Inside(ctx, node, c.Program, LoadCommand)
	if err != nil {
		return Measured{}, err
	}
	var output bytes.Buffer
	said := &lines{each: c.Progress}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, said
	cmd.WaitDelay = 2 * time.Second // a process that still holds the pipes after a kill ends with the lab
	if err := cmd.Run(); err != nil {
		return Measured{}, errors.Join(fmt.Errorf("%w: %s", err, said.last), context.Cause(ctx))
	}
	var m Measured
	if err := json.Unmarshal(output.Bytes(), &m); err != nil {
		return Measured{}, fmt.Errorf("its answer: %w", err)
	}
	return m, nil
}

func accessOf(c *rest.Config) Access {
	return Access{Server: c.Host, CA: c.CAData, Cert: c.CertData, Key: c.KeyData}
}

// lines calls each with every complete line.
type lines struct {
	each func(string)
	rest []byte
	last string
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.rest, l.last = rest, string(line)
		l.each(l.last)
	}
}

// Main runs Load with the Spec that it reads from in, and writes the Measured to out; both are JSON. It writes its progress to
// say, one line for each step.
func Main(ctx context.Context, in io.Reader, out, say io.Writer) error {
	var s Spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("what to do: %w", err)
	}
	m, err := Load(ctx, s, func(step string) { fmt.Fprintln(say, step) })
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m)
}

// restart kills the coordinator, starts it, and returns the time from the order until it answers /readyz with 200.
func (c Config) restart(ctx context.Context, host string) (time.Duration, error) {
	access, err := c.Lab.CoordinatorConfig(1, host)
	if err != nil {
		return 0, err
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return 0, err
	}
	client.Timeout = time.Second
	defer client.CloseIdleConnections()
	if err := c.Lab.Node(ctx, lab.Kill, host, lab.Coordinator); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := c.Lab.Node(ctx, lab.Start, host, lab.Coordinator); err != nil {
		return 0, err
	}
	for {
		_, err := Get(ctx, client, strings.TrimSuffix(access.Host, "/")+"/readyz")
		if err == nil {
			return time.Since(began), nil
		}
		if run.Pause(ctx, 5*time.Millisecond) != nil {
			return 0, fmt.Errorf("not ready: %w", err)
		}
	}
}
