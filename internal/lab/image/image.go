// Package image makes the container images of a lab's Pods, without a container engine and without a registry: one
// archive that `ctr -n k8s.io images import` takes.
//
//	registry.local/pause:1  our own pause program
//	registry.local/shell:1  Debian's static busybox, with all of its commands
//	registry.local/web:1    the shell, as a web server that answers its hostname
//
// The archive is a function of the two programs in it: the same bytes on every machine that has the same ones. It is an
// OCI layout, not the older format of `docker save`: that one has containerd make up manifests of its own, and needs
// the layer that shell and web share twice.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/lab/build/artifact"
)

// The images' names. There is no registry.local: Pods need imagePullPolicy IfNotPresent or Never, and the tag makes the
// former the default.
const (
	Pause = "registry.local/pause:1"
	Shell = "registry.local/shell:1"
	Web   = "registry.local/web:1"
)

// recipe changes when the images do for a reason that the programs in them don't show.
const recipe = "1"

// archiveName is the archive in its set.
const archiveName = "images.tar"

// Config says what the images are made of and where the archive is kept.
type Config struct {
	// CacheDir is the directory that package build uses too.
	CacheDir string

	// Pause and Busybox are static programs.
	Pause, Busybox string

	// Waiting, if set, is called when another process is just writing to the cache, with what it calls itself.
	Waiting func(holder string)

	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Archive holds all images of a lab.
type Archive struct {
	// Path is the archive's.
	Path string

	// Images are the names of the images in it.
	Images []string
}

// Ensure returns the archive, and makes it first if these programs are not in one yet.
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
			return write(filepath.Join(dir, archiveName), images)
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

// appletsTimeout is for a program that prints a list.
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

// named is an image and what it is called.
type named struct {
	name  string
	image v1.Image
}

// webScript is the web image's program. As process 1 it gets only the signals that it asks for; busybox's httpd asks
// for none, and would keep its Pod for the whole grace period.
const webScript = `#!/bin/sh
# answers GET / with this Pod's hostname, on port $PORT or 80
mkdir -p /www && hostname > /www/index.html || exit
echo "hello from $(hostname)"
httpd -f -p "${PORT:-80}" -h /www &
trap 'kill $!; exit 0' TERM INT
wait $!
`

// compose makes the images.
func compose(pause, busybox []byte, applets []string) ([]named, error) {
	pauseLayer, err := layer(file{"/pause", pause, 0o755})
	if err != nil {
		return nil, err
	}
	shellLayer, err := layer(shellFiles(busybox, applets)...)
	if err != nil {
		return nil, err
	}
	webLayer, err := layer(file{"/usr/local/bin/web", []byte(webScript), 0o755})
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	var images []named
	for _, i := range []struct {
		name   string
		config v1.Config
		layers []v1.Layer
	}{
		{Pause, v1.Config{Entrypoint: []string{"/pause"}}, []v1.Layer{pauseLayer}},
		{Shell, v1.Config{Cmd: []string{"/bin/sh"}, Env: env}, []v1.Layer{shellLayer}},
		{Web, v1.Config{Cmd: []string{"/usr/local/bin/web"}, Env: env}, []v1.Layer{shellLayer, webLayer}},
	} {
		image, err := assemble(i.config, i.layers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}
		images = append(images, named{i.name, image})
	}
	return images, nil
}

func assemble(config v1.Config, layers []v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	described, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	described = described.DeepCopy()
	described.Architecture, described.OS, described.Config = runtime.GOARCH, "linux", config
	return mutate.ConfigFile(image, described)
}

// file is an entry of a layer: a directory, a link or a regular file, by its mode. A link's content is where it leads.
type file struct {
	path    string
	content []byte
	mode    fs.FileMode
}

// shellFiles is what a shell expects around it, and busybox under all of its names.
func shellFiles(busybox []byte, applets []string) []file {
	files := []file{
		{"/tmp", nil, fs.ModeDir | fs.ModeSticky | 0o777},
		{"/root", nil, fs.ModeDir | 0o700},
		{"/proc", nil, fs.ModeDir | 0o755},
		{"/sys", nil, fs.ModeDir | 0o755},
		{"/dev", nil, fs.ModeDir | 0o755},
		{"/run", nil, fs.ModeDir | 0o755},
		{"/var/run", []byte("/run"), fs.ModeSymlink | 0o777},
		{"/etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"), 0o644},
		{"/etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644},
		{"/bin/busybox", busybox, 0o755},
	}
	for _, a := range applets {
		if a != "bin/busybox" {
			files = append(files, file{"/" + a, []byte("/bin/busybox"), fs.ModeSymlink | 0o777})
		}
	}
	return files
}

// layer packs files, with the directories that they need, without owners and times. It is not compressed: it goes from
// one place of a disk to another.
func layer(files ...file) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	made := map[string]bool{".": true}
	for _, f := range files {
		name := strings.TrimPrefix(f.path, "/")
		if !filepath.IsLocal(name) || made[name] {
			return nil, fmt.Errorf("layer: path %q is twice in it, or not a path", f.path)
		}
		if err := parents(w, name, made); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		made[name] = true
		if err := entry(w, name, f); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return static.NewLayer(packed.Bytes(), types.OCIUncompressedLayer), nil
}

func parents(w *tar.Writer, name string, made map[string]bool) error {
	dir := filepath.Dir(name)
	if made[dir] {
		return nil
	}
	if err := parents(w, dir, made); err != nil {
		return err
	}
	made[dir] = true
	return entry(w, dir, file{mode: fs.ModeDir | 0o755})
}

func entry(w *tar.Writer, name string, f file) error {
	h := &tar.Header{Name: name, Mode: int64(f.mode.Perm()), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	switch {
	case f.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
	case f.mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(f.content)
	default:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(f.content))
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	_, err := w.Write(f.content)
	return err
}

// write writes the images as an OCI layout in a tar file.
func write(path string, images []named) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), "layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	for _, i := range images {
		_, tag, _ := strings.Cut(i.name, ":")
		err := l.AppendImage(i.image, layout.WithAnnotations(map[string]string{
			"io.containerd.image.name":          i.name,
			"org.opencontainers.image.ref.name": tag,
		}), layout.WithPlatform(v1.Platform{Architecture: runtime.GOARCH, OS: "linux"}))
		if err != nil {
			return fmt.Errorf("layout: %s: %w", i.name, err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(pack(f, dir), f.Close())
}

// pack writes the files below dir, in the order of their names.
func pack(to io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := tar.NewWriter(to)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		return entry(w, name, file{content: content, mode: 0o644})
	})
	return errors.Join(err, w.Close())
}
