package flagfile

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// followInterval is how often Follow reads the file. An operator who has just saved it waits at most this long. Polling also
// finds changes that file notification misses, because a mounted ConfigMap is replaced by a link, and an editor renames the file.
const followInterval = 5 * time.Second

// Follow calls changed whenever the file of the flag --config differs from what was read of it before, first by Parse. It logs
// the error that changed returns. It returns nil when ctx ends. Without a file it only waits. If it can't read the file, it logs
// that once, until it can read the file again.
func Follow(ctx context.Context, fs *pflag.FlagSet, changed func() error) error {
	flag := fs.Lookup(FlagName)
	if flag == nil || flag.Value.String() == "" {
		<-ctx.Done()
		return nil
	}
	path, known := flag.Value.String(), strings.Join(flag.Annotations[annotationRead], "")
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		content, err := read(path)
		if err != nil {
			if !failed {
				log.Error(err, "Can't read the configuration file; the settings stay as they are", "file", path)
			}
			failed = true
			continue
		}
		failed = false
		if now := string(content); now != known {
			known = now
			if err := changed(); err != nil {
				log.Error(err, "Can't apply the changed configuration file; the settings stay as they are", "file", path)
			} else {
				log.Info("Applied the changed configuration file", "file", path)
			}
		}
	}
}
