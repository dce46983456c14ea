package flagfile

import (
	"bytes"
	"context"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// followInterval is how often Follow looks at the file: what an operator who has just saved it waits at most. A poll
// sees what notification misses: a mounted ConfigMap is replaced by a link, an editor renames.
const followInterval = 5 * time.Second

// Follow calls changed after each change of the content of the file that --config names in fs, which Parse has set,
// until ctx ends; then it returns nil. What changed returns is logged. Without a file it only waits. A file that cannot
// be read is logged, once until it can be again.
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
	// What Parse saw a moment ago. A change in between is noticed all the same by whoever compares settings, not files.
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
				log.Error(err, "The configuration file can't be read; going on as it was", "file", path)
			}
			failed = true
			continue
		}
		failed = false
		if !bytes.Equal(content, known) {
			known = content
			if err := changed(); err != nil {
				log.Error(err, "The configuration file has changed and can't be followed; going on as it was", "file", path)
			} else {
				log.Info("The configuration file has changed, following it", "file", path)
			}
		}
	}
}
