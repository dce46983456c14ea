package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"yurtcoordinator/e2e/kit"
)

// shotsTo names the directory for pictures of the page in a real Chromium. Without it none are taken, and no Chromium is needed.
const shotsTo = "YURTLAB_SCREENSHOTS"

// chromiums are the names of the program, the one without windows first.
var chromiums = []string{"chromium-headless-shell", "chromium", "google-chrome"}

const (
	// browsing is how long the browser has the page open, by its own clock, which waits for answers: some looks.
	browsing = 10 * time.Second
	// browserTime bounds that on a busy machine.
	browserTime = 2 * time.Minute
)

// ofLab dials from the lab's own network.
func ofLab(t *kit.T) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return t.Lab.Dial(ctx, "", address) }
}

// photographed opens a link of the lab's network in Chromium, checks that the page works there, and leaves pictures in dir.
func photographed(t *kit.T, link, dir string) {
	program := ""
	for _, name := range chromiums {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Fail("%s is set, and none of %v is installed", shotsTo, chromiums)
	}
	t.Must(os.MkdirAll(dir, 0o755))
	address, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	end := forwarded(t, address)
	defer end()
	for _, screen := range []struct {
		name                 string
		width, height, scale int
	}{{"desktop", 1280, 1500, 1}, {"tablet", 800, 1500, 1}, {"phone", 390, 2400, 2}} {
		for scheme, setting := range map[string]string{"light": "1", "dark": "0"} {
			file := filepath.Join(dir, "site-page-"+screen.name+"-"+scheme+".png")
			run(t, program, link, "--screenshot="+file, "--blink-settings=preferredColorScheme="+setting,
				fmt.Sprintf("--window-size=%d,%d", screen.width, screen.height),
				"--force-device-scale-factor="+strconv.Itoa(screen.scale))
			t.Say("%s", file)
		}
	}
	page, said := run(t, program, link, "--dump-dom", "--enable-logging=stderr")
	if !strings.Contains(page, "data-updates=") || strings.Contains(page, `class="stale"`) {
		t.Fail("in Chromium the page does not go on: %s", page)
	}
	if strings.Contains(said, "Content Security Policy") || strings.Contains(said, "Uncaught") {
		t.Fail("Chromium complains: %s", said)
	}
}

// run has Chromium open a page. It returns what it prints, and what it says about the page.
func run(t *kit.T, program, link string, args ...string) (out, said string) {
	ctx, cancel := context.WithTimeout(t.Ctx, browserTime)
	defer cancel()
	profile, err := os.MkdirTemp("", "yurtlab-chromium-")
	t.Must(err)
	defer func() { t.Must(os.RemoveAll(profile)) }()
	cmd := exec.CommandContext(ctx, program, append(append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--user-data-dir=" + profile, fmt.Sprintf("--virtual-time-budget=%d",
			browsing.Milliseconds()),
	}, args...), link)...)
	var printed, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	if err := cmd.Run(); err != nil {
		t.Fail("%s: %w: %s", program, err, complaints.String())
	}
	return printed.String(), complaints.String()
}

// forwarded lets the host reach an address of the lab's network under the same name, until end.
func forwarded(t *kit.T, address string) (end func()) {
	listener, err := net.Listen("tcp", address)
	t.Must(err)
	t.Background.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			t.Background.Go(func() { pass(t, conn, address) })
		}
	})
	return func() { _ = listener.Close() }
}

func pass(t *kit.T, here net.Conn, address string) {
	defer here.Close()
	there, err := t.Lab.Dial(t.Ctx, "", address)
	if err != nil {
		return
	}
	defer there.Close()
	stop := context.AfterFunc(t.Ctx, func() { _ = here.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, here)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
	_ = here.Close()
	<-done
}
