package check

import (
	"context"
	"net"
	"strconv"
)

const (
	nameCloud       = "cloud"
	nameCoordinator = "coordinator"
	flagCache       = "disk-cache-path"
	flagCerts       = "cert-dir"
)

// whereverItIs as Config.SecureAddress is wherever the node is.
const whereverItIs = "node"

// probe finds out something in bounded time, and returns a function that enters it into the facts.
type probe struct {
	name string
	run  func(ctx context.Context, c Config) func(*Facts)
}

// Gather runs all probes at once, within Config.Total. It leaves a probe behind that hangs in the kernel (on a dead
// network file system), and names it in Facts.Unanswered.
func Gather(ctx context.Context, c Config) Facts {
	c = c.withDefaults()
	return gather(ctx, c, probesOf(c))
}

func gather(ctx context.Context, c Config, probes []probe) Facts {
	ctx, cancel := context.WithTimeout(ctx, c.Total)
	defer cancel()
	f := Facts{Settings: c, Now: c.Now()}
	type outcome struct {
		index int
		enter func(*Facts)
	}
	outcomes := make(chan outcome, len(probes))
	// Probes end a little earlier, so that a server's probe can still report how far it got.
	brief, stop := context.WithTimeout(ctx, c.Total-c.Total/15)
	defer stop()
	for i, p := range probes {
		go func() { outcomes <- outcome{i, p.run(brief, c)} }()
	}
	enter := make([]func(*Facts), len(probes))
	for range probes {
		select {
		case o := <-outcomes:
			enter[o.index] = o.enter
			continue
		case <-ctx.Done():
		}
		break
	}
	for i, p := range probes { // in this order, whichever ended first
		if enter[i] == nil {
			f.Unanswered = append(f.Unanswered, p.name)
			continue
		}
		enter[i](&f)
	}
	return f
}

func probesOf(c Config) []probe {
	probes := []probe{
		{"yurthub and its ports", probeHub},
		{"certificates", func(_ context.Context, c Config) func(*Facts) {
			keys, _ := readKeys(c)
			return func(f *Facts) { f.Keys = keys }
		}},
		{"kubelet", probeKubelet},
		{"programs past yurthub", probePast},
	}
	for _, address := range c.Servers {
		probes = append(probes, probe{nameCloud + " " + address, func(ctx context.Context, c Config) func(*Facts) {
			s := probeServer(ctx, c, nameCloud, address)
			return func(f *Facts) { f.Cloud = append(f.Cloud, s) }
		}})
	}
	for _, address := range c.Coordinators {
		probes = append(probes, probe{nameCoordinator + " " + address, func(ctx context.Context, c Config) func(*Facts) {
			s := probeServer(ctx, c, nameCoordinator, address)
			return func(f *Facts) { f.Coordinator = append(f.Coordinator, s) }
		}})
	}
	dir := func(flag, path string) {
		if path == "" {
			return
		}
		probes = append(probes, probe{"--" + flag, func(context.Context, Config) func(*Facts) {
			d := probeDir(flag, path)
			return func(f *Facts) { f.Dirs = append(f.Dirs, d) }
		}})
	}
	dir(flagCache, c.CacheDir)
	if c.ownCertificate() {
		dir(flagCerts, c.CertDir)
	}
	return probes
}

// probeHub asks the running hub, and looks at its ports.
func probeHub(ctx context.Context, c Config) func(*Facts) {
	hub := askHub(ctx, c)
	ports := []Port{
		{Flag: "port", Address: net.JoinHostPort(c.BindAddress, strconv.Itoa(c.Port))},
		{Flag: "health-port", Address: net.JoinHostPort(c.HealthAddress, strconv.Itoa(c.HealthPort))},
	}
	switch s := hub.Status.Pods; {
	case c.SecureAddress == "":
	case c.SecureAddress != whereverItIs:
		ports = append(ports, Port{Flag: "secure-port", Address: net.JoinHostPort(c.SecureAddress, strconv.Itoa(c.SecurePort))})
	case s != nil && s.Address != "":
		ports = append(ports, Port{Flag: "secure-port", Address: s.Address})
	}
	held := listeners()
	for i := range ports {
		lookAtPort(ctx, &ports[i], held)
	}
	return func(f *Facts) { f.Hub, f.Ports = hub, ports }
}
