package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// File is the file with the last settings of the pool.
const File = "settings.json"

// Said is a pool's settings for its hubs. The zero Said has none.
type Said struct {
	// Generation grows with each change.
	Generation int64 `json:"generation"`
	// Configuration is an encoded YurtHubConfiguration.
	Configuration string `json:"configuration"`
}

// Settings returns the settings, and says which of them this program does not know.
func (s Said) Settings() (settings v1alpha1.HubSettings, unknown string, err error) {
	if s == (Said{}) {
		return v1alpha1.HubSettings{}, "", nil
	}
	return v1alpha1.DecodeShared([]byte(s.Configuration))
}

// refusal is why a ConfigMap's settings cannot be used.
type refusal struct {
	generation int64 // 0 if it cannot be read
	why        error
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

// Read parses a ConfigMap. It fails if the content is not settings for hubs, or if the function usable refuses them.
func Read(data map[string]string, usable func(v1alpha1.HubSettings) error) (Said, error) {
	generation, err := strconv.ParseInt(data[edge.SettingsGeneration], 10, 64)
	if err != nil || generation < 1 {
		return Said{}, &refusal{0, fmt.Errorf("%s is %q, want a number above 0", edge.SettingsGeneration,
			data[edge.SettingsGeneration])}
	}
	said := Said{generation, data[edge.SettingsConfiguration]}
	settings, _, err := said.Settings()
	if err == nil {
		err = usable(settings)
	}
	if err != nil {
		return Said{}, &refusal{generation, err}
	}
	return said, nil
}

// remembered is the content of the file.
type remembered struct {
	Pool edge.PoolName `json:"pool"`
	Said
}

func encode(pool edge.PoolName, s Said) ([]byte, error) { return json.Marshal(remembered{pool, s}) }

// recall returns what a file says about a pool. A file about another pool, which the node was in before, does not count.
func recall(pool edge.PoolName, content []byte) (Said, error) {
	var r remembered
	if err := json.Unmarshal(content, &r); err != nil {
		return Said{}, err
	}
	if r.Pool != pool {
		return Said{}, errors.New("it is about another pool")
	}
	if _, _, err := r.Settings(); err != nil {
		return Said{}, err
	}
	return r.Said, nil
}

// Recall returns what a hub of this pool has kept in dir. Nothing is no error.
func Recall(dir string, pool edge.PoolName) (Said, error) {
	content, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, os.ErrNotExist) {
		return Said{}, nil
	} else if err != nil {
		return Said{}, err
	}
	return recall(pool, content)
}
