package views

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"yurtcoordinator/internal/stream"
)

// servicesOf holds the Services with publishNotReadyAddresses. It is a Pupil.
type servicesOf struct {
	changed func()

	mu       sync.Mutex
	complete bool
	encoding stream.Encoding
	unready  map[stream.Key]struct{} // replaced, but never changed
}

// get returns the Services with publishNotReadyAddresses, and whether all are known. The map is never changed.
func (s *servicesOf) get() (map[stream.Key]struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unready, s.complete
}

// Replace implements Pupil.
func (s *servicesOf) Replace(all stream.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encoding, s.complete = all.Type.Encoding, true
	next := map[stream.Key]struct{}{}
	for _, o := range all.Objects {
		if s.wantsAllLocked(o) {
			next[o.Key] = struct{}{}
		}
	}
	s.unready = next
	s.changed()
}

// Apply implements Pupil.
func (s *servicesOf) Apply(_ context.Context, events []stream.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.unready)
	for _, e := range events {
		switch {
		case e.Type == stream.Deleted || (e.Type == stream.Added || e.Type == stream.Modified) && !s.wantsAllLocked(e.Object):
			delete(next, e.Object.Key)
		case e.Type == stream.Added || e.Type == stream.Modified:
			next[e.Object.Key] = struct{}{}
		}
	}
	if !maps.Equal(next, s.unready) {
		s.unready = next
		s.changed()
	}
	return nil
}

// Failed implements Pupil. No endpoint changes before all Services are known.
func (s *servicesOf) Failed(context.Context, error) {}

// wantsAllLocked reports whether a Service has publishNotReadyAddresses; true for one that can't be read.
func (s *servicesOf) wantsAllLocked(o stream.Object) bool {
	var service corev1.Service
	var err error
	if s.encoding == stream.Protobuf {
		err = service.Unmarshal(o.Raw)
	} else {
		err = json.Unmarshal(o.Raw, &service)
	}
	return err != nil || service.Spec.PublishNotReadyAddresses
}
