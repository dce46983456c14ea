package check

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"yurtcoordinator/internal/hub/config"
)

const (
	flagCache = "disk-cache-path"
	flagCerts = "cert-dir"
)

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
	for _, address := range c.ServerAddresses {
		probes = append(probes, probe{findingCloud + " " + address, func(ctx context.Context, c Config) func(*Facts) {
			s := probeServer(ctx, c, address)
			return func(f *Facts) { f.Cloud = append(f.Cloud, s) }
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
	dir(flagCache, c.DiskCachePath)
	if c.OwnCertificate() {
		dir(flagCerts, c.CertDir)
	}
	return probes
}

// probeHub asks the running hub, or else looks at the ports that it would need. A hub that answers has all of them: it ends when
// it can't have one.
func probeHub(ctx context.Context, c Config) func(*Facts) {
	hub := askHub(ctx, c)
	if hub.answers() {
		return func(f *Facts) { f.Hub = hub }
	}
	ports := []Port{
		{Flag: "port", Address: net.JoinHostPort(config.Loopback, strconv.Itoa(c.Port))},
		{Flag: "health-port", Address: net.JoinHostPort(c.HealthBindAddress, strconv.Itoa(c.HealthPort))},
	}
	if fixed, _ := c.PodsAt(); fixed.IsValid() {
		ports = append(ports, Port{Flag: "secure-port", Address: net.JoinHostPort(fixed.String(), strconv.Itoa(c.SecurePort))})
	}
	for i := range ports {
		ports[i].look(ctx)
	}
	return func(f *Facts) { f.Hub, f.Ports = hub, ports }
}

// look finds out whether somebody listens at the port, or else whether anybody could. For that it listens itself, and stops at
// once.
func (p *Port) look(ctx context.Context) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Address)
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		p.Held = true
	default:
		p.Trouble = cause(err)
	}
}
