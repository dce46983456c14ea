package flagfile

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// followInterval is how often Follow reads the file: an operator who has just saved it waits at most this long. Polling also
// finds changes that file notification misses: a mounted ConfigMap is replaced by a link, and an editor renames the file.
const followInterval = 5 * time.Second

// Follow calls changed after each change of the file that --config names in fs, which Parse has set. It logs the error that
// changed returns. It returns nil when ctx ends. Without a file it only waits. If it can't read the file, it logs that once,
// until it can read the file again.
func Follow(ctx context.Context, fs *pflag.FlagSet, changed func() error) error {
	var path string
	if flag := fs.Lookup(FlagName); flag != nil {
		path = flag.Value.String()
	}
	if path == "" {
		<-ctx.Done()
		return nil
	}
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	// This is what Parse saw a moment ago. A change in between is not lost: the first call of changed compares
	// settings, not files.
	known, err := read(path)
	for failed := err != nil; ; {
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
		if !bytes.Equal(content, known) {
			known = content
			if err := changed(); err != nil {
				log.Error(err, "Can't apply the changed configuration file; the settings stay as they are", "file", path)
			} else {
				log.Info("Applied the changed configuration file", "file", path)
			}
		}
	}
}
