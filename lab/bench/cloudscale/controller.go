package cloudscale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/lab/bench"
)

// controller is coordinator-controller with the chart's flags.
type controller struct {
	cluster        *cluster
	kubeconfig     string
	metrics, ready string
	pprof          string
	admin          *rest.Config
	flags          []string
	*process
}

func newController(c *cluster, admin *rest.Config) (*controller, error) {
	kubeconfig, err := c.kubeconfig("coordinator-controller", controllerUser, groupsOf(controllerUser)...)
	if err != nil {
		return nil, err
	}
	ports, err := bench.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	r := &controller{
		cluster: c, kubeconfig: kubeconfig, admin: admin,
		metrics: "https://" + at(0) + "/metrics", ready: "http://" + at(1) + "/readyz",
		flags: []string{
			c.cfg.CoordinatorController, "--kubeconfig=" + kubeconfig, "--leader-elect=true", "--silence-after=40s",
			"--approver=elsewhere",
			"--coordinator-image=registry.example.org/edge/yurt-coordinator", "--coordinator-version=v1.0.0",
			"--metrics-bind-address=" + at(0), "--health-probe-bind-address=" + at(1),
		},
	}
	if c.cfg.Profiles != "" {
		r.pprof = "http://" + at(2) + "/debug/pprof/"
		r.flags = append(r.flags, "--pprof-bind-address="+at(2))
	}
	return r, nil
}

// begin starts the controller.
func (r *controller) begin() (err error) {
	r.process, err = startProcess(r.cluster.dir, "coordinator-controller", r.flags...)
	return err
}

// awaitReady returns when the controller's cache is filled.
func (r *controller) awaitReady(ctx context.Context) error {
	return eventually(ctx, "coordinator-controller", serveTimeout, func(ctx context.Context) error {
		return answers(ctx, http.DefaultClient, r.ready)
	})
}

// died returns why the controller has ended; nil while it runs.
func (r *controller) died() error {
	if r.process == nil {
		return nil
	}
	return r.process.died()
}

// reading is what the controller has used up to a moment.
type reading struct {
	at    time.Time
	usage bench.Usage
	// allocated counts bytes, collections those of garbage, and heap is the heap in use, by Go's own account.
	allocated, collections, heap float64
	// errors counts the retries of failed work.
	errors float64
}

func (r *controller) read(ctx context.Context) (reading, error) {
	usage, err := r.usage()
	if err != nil {
		return reading{}, err
	}
	scraper, err := rest.HTTPClientFor(&rest.Config{
		BearerToken: r.cluster.token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it signs its certificate by itself
	})
	if err != nil {
		return reading{}, err
	}
	text, err := bench.Get(ctx, scraper, r.metrics)
	if err != nil {
		return reading{}, err
	}
	m := sums(text)
	return reading{
		at: time.Now(), usage: usage, allocated: m["go_memstats_alloc_bytes_total"],
		collections: m["go_gc_duration_seconds_count"], heap: m["go_memstats_heap_inuse_bytes"],
		errors: m["controller_runtime_reconcile_errors_total"],
	}, nil
}

// sums reads Prometheus' text format and returns the sum over the series of each name.
func sums(text []byte) map[string]float64 {
	found := make(map[string]float64)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		if space < 0 {
			continue
		}
		name, _, _ := strings.Cut(line[:space], "{")
		if v, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
			found[name] += v
		}
	}
	return found
}

// profile takes a profile of the controller and of kube-apiserver: of their processor time from now on, or of their heaps.
func (r *controller) profile(ctx context.Context, name, what string) error {
	if r.pprof == "" {
		return nil
	}
	api, err := rest.HTTPClientFor(r.admin)
	if err != nil {
		return err
	}
	api.Timeout = 2 * maxSteady
	plain := &http.Client{Timeout: api.Timeout}
	var working sync.WaitGroup
	var failed [2]error
	for i, p := range []struct {
		client        *http.Client
		from, program string
	}{{plain, r.pprof, "controller"}, {api, r.cluster.server + "/debug/pprof/", "kube-apiserver"}} {
		working.Go(func() {
			content, err := bench.Get(ctx, p.client, p.from+what)
			if err == nil {
				err = os.WriteFile(filepath.Join(r.cluster.cfg.Profiles, p.program+"."+name), content, 0o600)
			}
			failed[i] = err
		})
	}
	working.Wait()
	return errors.Join(failed[:]...)
}
