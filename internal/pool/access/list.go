package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

const (
	// listEvery is how often a list's file is read. File notification may miss a change, because a mounted Secret is replaced
	// through a symbolic link.
	listEvery = 2 * time.Second
	// maxListFile bounds a list's file, in bytes: as much as a Secret may have.
	maxListFile = 1 << 20
)

// list follows a file with one item per line, and skips empty lines. While the file can't be read, or has a bad line, the last
// content stays valid.
type list struct {
	flag string // names the file in errors
	file string // empty means that there is no list
	bad  func(line string) error
	// replaces is called before other items count. It may be nil.
	replaces func(was, is sets.Set[string])
	items    atomic.Pointer[sets.Set[string]] // nil until the file was first read
}

// has reports whether the list holds the item, as last read. It holds nothing before the first read.
func (l *list) has(item string) bool {
	items := l.items.Load()
	return items != nil && items.Has(item)
}

// known reports whether the file has been read, or there is none to read.
func (l *list) known() bool { return l.file == "" || l.items.Load() != nil }

// run reads the file again and again until ctx ends. It calls changed after each change.
func (l *list) run(ctx context.Context, changed func(context.Context)) error {
	if l.file == "" {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	complaint := ""
	for {
		switch news, err := l.read(); {
		case err != nil && err.Error() != complaint:
			complaint = err.Error()
			klog.FromContext(ctx).Error(err, "Can't read a list; what it held before stays in force")
		case err == nil:
			complaint = ""
			if news {
				klog.FromContext(ctx).Info("Read a list", "flag", l.flag, "items", l.items.Load().Len())
				changed(ctx)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads the file and reports whether the list has changed.
func (l *list) read() (news bool, err error) {
	info, err := os.Stat(l.file)
	if err != nil {
		return false, fmt.Errorf("--%s: %w", l.flag, err)
	}
	if info.Size() > maxListFile {
		return false, fmt.Errorf("--%s %s: longer than %d bytes", l.flag, l.file, maxListFile)
	}
	content, err := os.ReadFile(l.file)
	if err != nil {
		return false, fmt.Errorf("--%s: %w", l.flag, err)
	}
	next := sets.New[string]()
	for line := range bytes.Lines(content) {
		item := strings.TrimSpace(string(line))
		if item == "" {
			continue
		}
		if err := l.bad(item); err != nil {
			return false, fmt.Errorf("--%s %s: %q %w; give one per line", l.flag, l.file, item, err)
		}
		next.Insert(item)
	}
	have := l.items.Load()
	if have != nil && have.Equal(next) {
		return false, nil
	}
	if l.replaces != nil {
		var was sets.Set[string]
		if have != nil {
			was = *have
		}
		l.replaces(was, next)
	}
	l.items.Store(&next)
	return true, nil
}

var errNotNodeName = errors.New("is not a valid Node name")
