package check

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/identity"
)

// probe finds out something in bounded time, and returns a function that enters it into the facts.
type probe struct {
	name string
	run  func(context.Context) func(*Facts)
}

// Gather runs all probes at once, within 15 s. If a probe hangs in the kernel (on a dead network file system), Gather abandons
// the probe and names it in Facts.Unanswered.
func Gather(ctx context.Context, c Config) Facts {
	if c.Step == 0 {
		c.Step = 5 * time.Second
	}
	return gather(ctx, c, append(probesOf(c),
		probe{"kubelet", func(ctx context.Context) func(*Facts) {
			k := findKubelet(ctx, kubeletHealth, c.Step)
			return func(f *Facts) { f.Kubelet = k }
		}},
		probe{findingPast, func(ctx context.Context) func(*Facts) {
			past := programsPast(ctx, c)
			return func(f *Facts) { f.Past = past }
		}}))
}

func gather(ctx context.Context, c Config, probes []probe) Facts {
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	brief, stop := context.WithTimeout(ctx, total-reporting)
	defer stop()
	f := Facts{Settings: c, Now: time.Now(), Root: os.Geteuid() == 0}
	found := make([]chan func(*Facts), len(probes))
	for i, p := range probes {
		found[i] = make(chan func(*Facts), 1)
		go func() { found[i] <- p.run(brief) }()
	}
	for i, p := range probes { // in this order, whichever ended first
		select {
		case enter := <-found[i]:
			enter(&f)
			continue
		case <-ctx.Done():
		}
		select {
		case enter := <-found[i]:
			enter(&f)
		default:
			f.Unanswered = append(f.Unanswered, p.name)
		}
	}
	if said := f.Hub.Status.Identity; said != nil && f.Keys != nil {
		f.Keys.Client, f.Keys.Serving = said.Client, said.Serving
		if said.Authorities != nil {
			f.Keys.Authorities = said.Authorities
		}
	}
	return f
}

// probesOf are the probes of the hub and of what it needs.
func probesOf(c Config) []probe {
	held := sync.OnceValues(func() (identity.Held, error) {
		if c.OwnCertificate() {
			return identity.Look(c.Certificates())
		}
		return identity.Given{CA: c.CAFile, Cert: c.CertFile, Key: c.KeyFile}.Look(c.Node), nil
	})
	probes := []probe{
		{"yurthub and its ports", func(ctx context.Context) func(*Facts) {
			hub, ports := askHub(ctx, c), []Port(nil)
			if !hub.answers() { // one that does has its ports: it ends when it can't have one
				ports = lookAtPorts(ctx, c)
			}
			return func(f *Facts) { f.Hub, f.Ports = hub, ports }
		}},
		{"certificates", func(context.Context) func(*Facts) {
			k := keysOf(c, held)
			return func(f *Facts) { f.Keys = k }
		}},
	}
	for _, address := range c.ServerAddresses {
		probes = append(probes, probe{findingCloud + " " + address, func(ctx context.Context) func(*Facts) {
			h, _ := held()
			s := probeServer(ctx, c, h, address)
			return func(f *Facts) { f.Cloud = append(f.Cloud, s) }
		}})
	}
	dirs := map[string]string{flagCache: c.DiskCachePath}
	if c.OwnCertificate() {
		dirs[flagCerts] = c.CertDir
	}
	for _, flag := range []string{flagCache, flagCerts} {
		if path := dirs[flag]; path != "" {
			probes = append(probes, probe{"--" + flag, func(context.Context) func(*Facts) {
				d := lookAtDir(flag, path)
				return func(f *Facts) { f.Dirs = append(f.Dirs, d) }
			}})
		}
	}
	return probes
}

func keysOf(c Config, held func() (identity.Held, error)) *Keys {
	h, err := held()
	if err != nil {
		return &Keys{Refused: err.Error()}
	}
	k := &Keys{Status: h.Status, KeyFile: c.KeyFile, RootsFrom: h.RootsFrom}
	if c.OwnCertificate() {
		k.KeyFile = filepath.Join(c.CertDir, "client.pem")
	}
	if info, err := os.Stat(k.KeyFile); err == nil {
		k.Mode = info.Mode().Perm()
	}
	return k
}

// lookAtPorts looks at the ports that a hub would need.
func lookAtPorts(ctx context.Context, c Config) []Port {
	ports := []Port{
		{Flag: "port", Address: net.JoinHostPort(config.Loopback, strconv.Itoa(c.Port))},
		{Flag: "health-port", Address: net.JoinHostPort(c.HealthBindAddress, strconv.Itoa(c.HealthPort))},
	}
	if fixed, _ := c.PodsAt(); fixed.IsValid() {
		ports = append(ports, Port{Flag: "secure-port", Address: net.JoinHostPort(fixed.String(), strconv.Itoa(c.SecurePort))})
	}
	for i := range ports {
		ports[i].probe(ctx)
	}
	return ports
}
