package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/machine"
)

// controllerProgram is the file of coordinator-controller.
const controllerProgram = "coordinator-controller"

// accessKey is the key of an operator's kubeconfig in its Secret.
const accessKey = "kubeconfig"

// Coordinator returns the node that runs a pool's coordinator, or is about to. In an installed lab that is the node of the
// coordinator's Pod, as last heard from the cloud.
func (l *Lab) Coordinator(pool int) (edge.NodeName, error) {
	p, err := l.coordinatorPlace(pool)
	return p.name(), err
}

func (l *Lab) coordinatorPlace(pool int) (place, error) {
	if !l.cfg.Installed {
		return place{pool, coordinatorIndex}, nil
	}
	pods, err := l.watch().coordinators.Pods(edge.NamespaceSystem).List(everything)
	if err != nil {
		return place{}, err
	}
	if p, ok := coordinatorAmong(pods, l.all, pool); ok {
		return p, nil
	}
	return place{}, fmt.Errorf("no Pod of a coordinator is on a node of pool %s; see: yurtlab kubectl -- describe yc",
		poolName(pool))
}

// coordinatorAmong finds the Pod of a pool's coordinator. Of several Pods it prefers one that has not ended and is not being
// deleted, and of those the youngest.
func coordinatorAmong(pods []*corev1.Pod, all []place, pool int) (where place, found bool) {
	at := map[string]place{}
	for _, p := range all {
		if p.pool == pool {
			at[string(p.name())] = p
		}
	}
	var best *corev1.Pod
	for _, pod := range pods {
		if p, ok := at[pod.Spec.NodeName]; ok && (best == nil || better(pod, best)) {
			best, where = pod, p
		}
	}
	return where, best != nil
}

// better reports whether pod is more likely the coordinator than other.
func better(pod, other *corev1.Pod) bool {
	if goes, otherGoes := ends(pod), ends(other); goes != otherGoes {
		return otherGoes
	}
	return other.CreationTimestamp.Before(&pod.CreationTimestamp)
}

// ends reports whether a Pod has ended or is about to.
func ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// access returns the operators' kubeconfig for a pool's coordinator from the cloud, or the last one that the cloud gave.
func (l *Lab) access(ctx context.Context, pool int) ([]byte, error) {
	if !l.cfg.Installed {
		return nil, errors.New("only an installed lab has kubeconfigs in the cloud")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	name := poolName(pool).KubeconfigSecret()
	s, err := l.watch().client.CoreV1().Secrets(edge.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && len(s.Data[accessKey]) > 0 {
		l.accesses[pool] = s.Data[accessKey]
	}
	if known := l.accesses[pool]; known != nil {
		return known, nil
	}
	if err == nil {
		err = fmt.Errorf("it has no key %s", accessKey)
	}
	return nil, fmt.Errorf("the operators' kubeconfig in Secret %s/%s: %w", edge.NamespaceSystem, name, err)
}

// restartTimeout bounds the wait for a kubelet to start a container again.
const restartTimeout = time.Minute

// containerised performs an action on all processes of a program that runs in a container of a machine. kubelet restarts the
// program after a kill, so the action Start only waits for that.
func (l *Lab) containerised(ctx context.Context, a Action, h *host, program string) error {
	h.busy.Lock()
	defer h.busy.Unlock()
	l.mu.Lock()
	m := h.machine
	l.mu.Unlock()
	if m == nil {
		return fmt.Errorf("%s has no power", h.spec.Name)
	}
	switch a {
	case Kill:
		return m.SignalProgram(ctx, program, syscall.SIGKILL)
	case Pause:
		return m.SignalProgram(ctx, program, syscall.SIGSTOP)
	case Resume:
		return m.SignalProgram(ctx, program, syscall.SIGCONT)
	case Restart:
		_ = m.SignalProgram(ctx, program, syscall.SIGKILL) // a program that has died is started all the same
	}
	return waitRunning(ctx, m, program)
}

func waitRunning(ctx context.Context, m *machine.Machine, program string) error {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	return again(ctx, 20*time.Millisecond, func() error {
		found, err := m.Find(ctx, program)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("kubelet on %s does not start %s: should it run there? see: yurtlab logs %[1]s kubelet",
				m.Spec.Name, program)
		}
		return nil
	})
}

// coordinatorRoutes answer Client.Coordinator and Client.Access.
func (s *server) coordinatorRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /coordinator", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		pool, err := s.poolOf(r)
		if err != nil {
			return nil, err
		}
		p, err := s.lab.coordinatorPlace(pool)
		return coordinatorAt{Node: string(p.name()), Server: s.lab.cfg.families().coordinatorAddress(p)}, err
	}))
	mux.HandleFunc("GET /access", s.whenBooted(func(_ http.ResponseWriter, r *http.Request) (any, error) {
		pool, err := s.poolOf(r)
		if err != nil {
			return nil, err
		}
		return s.lab.access(r.Context(), pool)
	}))
}

func (s *server) poolOf(r *http.Request) (int, error) {
	pool, err := strconv.Atoi(r.URL.Query().Get("pool"))
	if err != nil || pool < 1 || pool > s.lab.cfg.Pools {
		return 0, fmt.Errorf("no pool %q in this lab", r.URL.Query().Get("pool"))
	}
	return pool, nil
}

// coordinatorAt is the place of a coordinator.
type coordinatorAt struct {
	Node   string `json:"node"`
	Server string `json:"server"`
}

func ofPool(pool int) url.Values { return url.Values{"pool": {strconv.Itoa(pool)}} }

// Coordinator returns the node that runs a pool's coordinator, or is about to. That is the pool's first node, or in an
// installed lab the node of the coordinator's Pod.
func (c *Client) Coordinator(ctx context.Context, pool int) (node string, err error) {
	var at coordinatorAt
	err = c.call(ctx, http.MethodGet, "coordinator", ofPool(pool), &at)
	return at.Node, err
}

// Access returns the kubeconfig that an installation makes for a pool's operators. Only an installed lab has one.
func (c *Client) Access(ctx context.Context, pool int) ([]byte, error) {
	var kubeconfig []byte
	err := c.call(ctx, http.MethodGet, "access", ofPool(pool), &kubeconfig)
	return kubeconfig, err
}

// CoordinatorConfig returns access to a pool's coordinator with the certificate of that name in the lab's keys: "operator", a
// node's name, or one of the certificates that must be refused. In an installed lab the access follows the coordinator when it
// moves, and "operator" is the kubeconfig that the cloud has for operators.
func (c *Client) CoordinatorConfig(pool int, name string) (*rest.Config, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	if !cfg.Installed {
		return c.config(name, cfg.families().coordinatorAddress(place{pool, coordinatorIndex}), "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	kubeconfig, err := c.Access(ctx, pool)
	if err != nil {
		return nil, err
	}
	access, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the operators' kubeconfig of pool %s: %w", poolName(pool), err)
	}
	if name != Operator {
		own, err := c.config(name, access.Host, "")
		if err != nil {
			return nil, err
		}
		own.CAData = access.CAData // the client certificate is the lab's, the server's is not
		access = own
	}
	access.QPS = -1
	access.ServerName = poolName(pool).CoordinatorServerName() // whatever its address is then
	access.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialCoordinator(ctx, pool) }
	return access, nil
}

// CoordinatorConfigAt is CoordinatorConfig for the coordinator of a slot, in a lab that starts several.
func (c *Client) CoordinatorConfigAt(pool, slot int, name string) (*rest.Config, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	all := cfg.coordinators(pool)
	if cfg.Installed || slot < 0 || slot >= len(all) {
		return nil, fmt.Errorf("this lab starts no coordinator in slot %d of pool %s", slot, poolName(pool))
	}
	return c.config(name, cfg.families().coordinatorAddress(all[slot]), "")
}

// dialCoordinator connects to a pool's coordinator from the lab's own address in the pool's LAN.
func (c *Client) dialCoordinator(ctx context.Context, pool int) (net.Conn, error) {
	var at coordinatorAt
	if err := c.call(ctx, http.MethodGet, "coordinator", ofPool(pool), &at); err != nil {
		return nil, err
	}
	server, err := url.Parse(at.Server)
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, "", server.Host)
}

// operatorArgs returns the arguments that make kubectl the operator at the coordinator of a pool's slot. In an installed lab
// they name the unchanged kubeconfig from the cloud.
func (c *Client) operatorArgs(ctx context.Context, cfg Config, pool, slot int) ([]string, error) {
	if !cfg.Installed {
		return []string{
			"--kubeconfig=" + filepath.Join(c.dir, "pki", Operator+".kubeconfig"),
			"--server=" + cfg.families().coordinatorAddress(cfg.coordinators(pool)[slot]),
		}, nil
	}
	kubeconfig, err := c.Access(ctx, pool)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.dir, Operator+"-"+string(poolName(pool))+".kubeconfig")
	if err := os.WriteFile(path+".new", kubeconfig, 0o600); err != nil {
		return nil, err
	}
	return []string{"--kubeconfig=" + path}, os.Rename(path+".new", path) // another kubectl may be reading it
}
