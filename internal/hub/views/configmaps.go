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

// Shown is one value of ConfigMaps that kubelet, and so each Pod that mounts it, is shown in another form than the cloud's.
type Shown struct {
	// Namespace and Name say of which ConfigMaps; an empty Namespace means of that Name in each. Key says which value.
	Namespace, Name, Key string
	// Form returns what is shown in place of a value. inputs is all that it depends on besides: what Change was given last, and
	// "" before. It is pure, and returns value itself to show it as it is.
	Form func(value, inputs string) string
}

func (s *Shown) of(k stream.Key) bool {
	return s.Name == k.Name && (s.Namespace == "" || s.Namespace == k.Namespace)
}

// ConfigMaps shows kubelet some values of ConfigMaps in other forms. Callers with credentials of their own get what the cloud
// has: they may write it back. Safe for concurrent use.
//
// A change of inputs is told within kubelet's watches (docs/adr/0019). What the cloud or recall answers to a single get is shown
// in the same form, by Get, if kubelet asks for protobuf, as it does by default; the disk has the cloud's.
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

// NewConfigMaps returns the view that shows these.
func NewConfigMaps(shown ...Shown) *ConfigMaps {
	return &ConfigMaps{now: live.NewValue(&forms{shown: shown, inputs: make([]string, len(shown))})}
}

// Change sets the inputs of what is shown of the ConfigMaps of a name. Who watches them is told, if they look another then.
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

// View returns how kubelet sees a selection; nil means as it is. Kubelet follows each ConfigMap by itself, or finds it among all
// where the pool shares them. A selection of several others is as the cloud has it.
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

// Show implements replica.Look. It shows an object that it can't read as it is.
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

// withValue returns a ConfigMap in which a value is what form makes of it, and raw itself if that is the same or there is none.
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
