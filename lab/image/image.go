// Package image makes the container images of a lab's Pods, without a container engine and without a registry. They are one
// archive for `ctr -n k8s.io images import`.
//
//	registry.local/pause:1  our own pause program
//	registry.local/shell:1  Debian's static busybox, with all of its commands
//	registry.local/web:1    the shell, as a web server that answers its hostname
//
// The archive is a function of the two programs in it: machines with the same programs get the same bytes. It is an OCI layout,
// not the older format of `docker save`. From the older format, containerd would make its own manifests, and the archive would
// have the layer that shell and web share twice.
package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/lab/build/artifact"
)

// The images' names. registry.local does not exist, so Pods need imagePullPolicy IfNotPresent or Never. The tag, which is not
// latest, makes IfNotPresent the default.
const (
	Pause = "registry.local/pause:1"
	Shell = "registry.local/shell:1"
	Web   = "registry.local/web:1"
)

// recipe changes when the images change for a reason that their programs don't show.
const recipe = "2"

// archiveName is the archive's file in its set.
const archiveName = "images.tar"

// Config says what the images are made from and where the archive is kept.
type Config struct {
	// CacheDir is the directory that package build also uses.
	CacheDir string

	// Pause and Busybox are static programs.
	Pause, Busybox string

	// Waiting, if set, is called while another process writes to the cache, with that process's name for itself.
	Waiting func(holder string)

	// Clock is the clock; nil means the real one.
	Clock clock.WithTicker
}

// Archive holds all images of a lab.
type Archive struct {
	// Path is the archive's path.
	Path string

	// Images are the names of the images in the archive.
	Images []string
}

// Ensure returns the archive, and makes it first if none has these programs yet.
func Ensure(ctx context.Context, config Config) (Archive, error) {
	pause, err := os.ReadFile(config.Pause)
	if err != nil {
		return Archive{}, fmt.Errorf("pause image: %w", err)
	}
	busybox, err := os.ReadFile(config.Busybox)
	if err != nil {
		return Archive{}, fmt.Errorf("shell image: %w", err)
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	e, err := store.Get(ctx, artifact.Spec{
		Name:  "images",
		Key:   artifact.Key(recipe, runtime.GOARCH, string(pause), string(busybox)),
		Files: []string{archiveName},
		Build: func(ctx context.Context, dir, _ string) error {
			names, err := applets(ctx, config.Busybox)
			if err != nil {
				return err
			}
			images, err := compose(pause, busybox, names)
			if err != nil {
				return err
			}
			return oci.WriteArchive(filepath.Join(dir, archiveName), images...)
		},
	})
	if err != nil {
		return Archive{}, fmt.Errorf("images: %w", err)
	}
	if err := e.Close(); err != nil {
		return Archive{}, fmt.Errorf("images: %w", err)
	}
	return Archive{Path: e.Path(archiveName), Images: []string{Pause, Shell, Web}}, nil
}

// appletsTimeout bounds a program that prints a list.
const appletsTimeout = 10 * time.Second

// applets asks a busybox for its commands, as paths.
func applets(ctx context.Context, busybox string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, appletsTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, busybox, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-full: %w", busybox, err)
	}
	return strings.Fields(string(out)), nil
}

// platform returns this machine's platform, on which a lab's containers run.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// webScript is the web image's program. It ends at SIGTERM. As process 1, busybox's httpd itself would not: the kernel gives
// process 1 only the signals that it asks for. Its Pod would stay for the whole grace period.
const webScript = `#!/bin/sh
# answers GET / with this Pod's hostname, on port $PORT or 80
mkdir -p /www && hostname > /www/index.html || exit
echo "hello from $(hostname)"
httpd -f -p "${PORT:-80}" -h /www &
trap 'kill $!; exit 0' TERM INT
wait $!
`

// compose makes the images.
func compose(pause, busybox []byte, applets []string) ([]oci.Named, error) {
	pauseLayer, err := oci.Layer(oci.Executable("/pause", pause))
	if err != nil {
		return nil, err
	}
	shellLayer, err := oci.Layer(shellFiles(busybox, applets)...)
	if err != nil {
		return nil, err
	}
	webLayer, err := oci.Layer(oci.Executable("/usr/local/bin/web", []byte(webScript)))
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	var images []oci.Named
	for _, i := range []struct {
		name   string
		config v1.Config
		layers []v1.Layer
	}{
		{Pause, v1.Config{Entrypoint: []string{"/pause"}}, []v1.Layer{pauseLayer}},
		{Shell, v1.Config{Cmd: []string{"/bin/sh"}, Env: env}, []v1.Layer{shellLayer}},
		{Web, v1.Config{Cmd: []string{"/usr/local/bin/web"}, Env: env}, []v1.Layer{shellLayer, webLayer}},
	} {
		image, err := oci.Image(platform(), i.config, i.layers...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}
		images = append(images, oci.Named{Name: i.name, Content: image})
	}
	return images, nil
}

// shellFiles returns the files that a shell expects, and busybox under all its names.
func shellFiles(busybox []byte, applets []string) []oci.File {
	files := []oci.File{
		oci.Dir("/tmp", fs.ModeSticky|0o777),
		oci.Dir("/root", 0o700),
		oci.Dir("/proc", 0o755),
		oci.Dir("/sys", 0o755),
		oci.Dir("/dev", 0o755),
		oci.Dir("/run", 0o755),
		oci.Link("/var/run", "/run"),
		oci.Text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"),
		oci.Text("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
		oci.Executable("/bin/busybox", busybox),
	}
	for _, a := range applets {
		if a != "bin/busybox" {
			files = append(files, oci.Link("/"+a, "/bin/busybox"))
		}
	}
	return files
}
