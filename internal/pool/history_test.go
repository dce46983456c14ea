package pool

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestRewritingForeverFitsTheSmallestQuota writes more than the quota, over and over the same object, now small, now large:
// without housekeeping etcd would be full on the way.
func TestRewritingForeverFitsTheSmallestQuota(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) { config.QuotaBytes = minQuotaBytes })
	n1 := c.hub(t, "n1")
	n1.Ask()
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}}
	written, updates := 0, 0
	for written < rewrittenBytes {
		size := 20<<10 + rand.IntN(180<<10)
		own.Annotations = map[string]string{"filler": strings.Repeat(string(rune('a'+rand.IntN(26))), size)}
		written, updates = written+size, updates+1
		own.ResourceVersion = strconv.Itoa(updates)
		n1.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, own)))
	}
	var files int64
	err := filepath.WalkDir(c.dataDir, func(_ string, entry os.DirEntry, err error) error {
		if info, statErr := entry.Info(); err == nil && statErr == nil {
			files += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d updates of %d MB in all; files of %d MB", updates, written>>20, files>>20)
	if files > 2*minQuotaBytes {
		t.Errorf("the files have %d MB", files>>20)
	}
}
