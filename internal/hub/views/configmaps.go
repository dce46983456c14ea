package views

import (
	"bytes"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

var configMapsResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Shown is a value, in one or more ConfigMaps, that kubelet sees in another form than the cloud's. Pods that mount these
// ConfigMaps see that form, too.
type Shown struct {
	// Namespace and Name select the ConfigMaps; an empty Namespace means all with that Name. Key selects the value.
	Namespace, Name, Key string
	// Form returns the value as kubelet sees it. It is a pure function of the cloud's value and of the inputs, which
	// ConfigMaps.Change sets; before the first call they are "".
	Form func(value, inputs string) string
}

func (s *Shown) of(k stream.Key) bool {
	return s.Name == k.Name && (s.Namespace == "" || s.Namespace == k.Namespace)
}

// ConfigMaps shows kubelet some values of ConfigMaps in other forms. Callers get the cloud's values, because they may write them
// back. Safe for concurrent use.
//
// When inputs change, kubelet's watches report the changed ConfigMaps (docs/adr/0019). For single reads, the method Get applies
// the same forms to answers from the cloud or from recall. An answer in JSON is not changed; kubelet asks for protobuf by
// default. The disk keeps the cloud's values.
type ConfigMaps struct {
	mu  sync.Mutex // orders changes
	now *live.Value[*forms]

	unviewed sync.Once // says that a get was answered in JSON
}

// forms is a replica.Look. It is immutable.
type forms struct {
	shown  []Shown
	inputs []string // of each
}

// NewConfigMaps returns a view with these values.
func NewConfigMaps(shown ...Shown) *ConfigMaps {
	return &ConfigMaps{now: live.NewValue(&forms{shown: shown, inputs: make([]string, len(shown))})}
}

// Change sets the inputs for the values of all ConfigMaps of a name. Watches of these ConfigMaps report what changes.
func (c *ConfigMaps) Change(name, inputs string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.now.Get()
	next := &forms{shown: old.shown, inputs: slices.Clone(old.inputs)}
	for i := range next.shown {
		if next.shown[i].Name == name {
			next.inputs[i] = inputs
		}
	}
	if !slices.Equal(old.inputs, next.inputs) {
		c.now.Set(next)
	}
}

// View returns how kubelet sees a selection; nil means as the cloud has it. Two kinds of selections have a view: one ConfigMap
// with a Shown value, because kubelet follows each ConfigMap separately; and all ConfigMaps, from which kubelet reads if the pool
// shares ConfigMaps.
func (c *ConfigMaps) View(s cache.Selection) replica.View {
	if s.Resource != configMapsResource {
		return nil
	}
	if s == cache.Whole(configMapsResource) {
		return c
	}
	selector, err := fields.ParseSelector(s.Fields)
	if err != nil {
		return nil
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	shown := func(each Shown) bool { return each.of(stream.Key{Namespace: s.Namespace, Name: name}) }
	if ok && slices.ContainsFunc(c.now.Get().shown, shown) {
		return c
	}
	return nil
}

// Look implements replica.View.
func (c *ConfigMaps) Look() (replica.Look, <-chan struct{}) { return c.now.Watch() }

// Show implements replica.Look. An object that it can't read stays unchanged.
func (f *forms) Show(t stream.Type, o stream.Object) ([]byte, bool) {
	if t.Kind != "ConfigMap" || t.Group != corev1.GroupName {
		return o.Raw, true
	}
	raw := o.Raw
	for i := range f.shown {
		if !f.shown[i].of(o.Key) {
			continue
		}
		next, err := withValue(raw, f.shown[i].Key, func(value string) string {
			return f.shown[i].Form(value, f.inputs[i])
		})
		if err != nil {
			return o.Raw, true
		}
		raw = next
	}
	return raw, true
}

// withValue returns a ConfigMap with the function form applied to the value of one key. It returns raw itself if the ConfigMap
// has no such key, or if form returns the same value.
func withValue(raw []byte, key string, form func(string) string) ([]byte, error) {
	out, err := edit.Change(raw, func(entry edit.Field) ([]byte, error) {
		return entryWith(entry.Value, key, form)
	}, edit.ConfigMapData)
	if err == nil && bytes.Equal(out, raw) {
		return raw, nil
	}
	return out, err
}

func entryWith(entry []byte, key string, form func(string) string) ([]byte, error) {
	var name, value string
	for f, err := range edit.Fields(entry) {
		switch {
		case err != nil:
			return nil, err
		case f.Number == edit.MapKey:
			name = string(f.Value)
		case f.Number == edit.MapValue:
			value = string(f.Value)
		}
	}
	if name != key {
		return entry, nil
	}
	shown := form(value)
	if shown == value {
		return entry, nil
	}
	return edit.Set(entry, edit.MapValue, []byte(shown))
}
