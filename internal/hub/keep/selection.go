package keep

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/saver"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

// Selection is what a list or a watch speaks of.
type Selection struct {
	Resource schema.GroupVersionResource
	// Namespace is empty for all, and for what has none.
	Namespace string
	// Fields and Labels are selectors, as the program sent them.
	Fields, Labels string
}

// selectionOf returns the selection of a list or watch, and false if it names an object in its path, as nobody has done
// since Kubernetes 1.11.
func selectionOf(r *http.Request, info *request.RequestInfo) (Selection, bool) {
	query := r.URL.Query()
	return Selection{
		Resource: schema.GroupVersionResource{
			Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		},
		Namespace: info.Namespace, Fields: query.Get("fieldSelector"), Labels: query.Get("labelSelector"),
	}, len(info.Parts) == 1
}

func (s Selection) id(client string) store.ID {
	return store.ID{Client: client, Resource: s.Resource, Namespace: s.Namespace, Fields: s.Fields, Labels: s.Labels}
}

// String is the selection for people to read.
func (s Selection) String() string { return s.id("").String() }

// Feed keeps a replica up to date; feed.Feed is one.
type Feed interface {
	// Run feeds until ctx ends, and returns nil then.
	Run(ctx context.Context) error
	Status() *live.Value[feed.Status]
}

// kept is a selection that is followed.
type kept struct {
	selection Selection
	replica   *replica.Replica
	saver     *saver.Saver
	handler   *replica.Handler
	feed      Feed
	end       context.CancelFunc
	restored  chan struct{} // closed when what the disk has of it is there
	ended     chan struct{} // closed when nothing of it is left

	// The set's lock guards these.
	users  int
	unused time.Time // since when, if there are no users
	ending bool
}

// prospect is what can be expected of a selection.
type prospect uint8

const (
	// known: it is complete, as of whatever revision.
	known prospect = iota
	// foreign: it is the cloud's to answer, which can be reached and has something else to say than its content; or nothing
	// is kept any longer.
	foreign
	// unreachable: it was never complete, and the cloud cannot be reached.
	unreachable
	// late: neither has shown within the time.
	late
)

// expect waits until it is known what can be expected of it.
func (k *kept) expect(ctx context.Context, cloud *live.Value[link.State], wait time.Duration) prospect {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-k.restored:
	case <-timer.C:
		return late
	case <-ctx.Done():
		return late
	}
	for {
		complete, completed := k.replica.Complete().Watch()
		state, linked := cloud.Watch()
		status, told := k.feed.Status().Watch()
		switch {
		case state == link.Up && (status.Denied || status.Refused != "" && !complete):
			return foreign
		case complete:
			return known
		case state == link.Down:
			return unreachable
		}
		select {
		case <-completed:
		case <-linked:
		case <-told:
		case <-k.ended:
			return foreign
		case <-timer.C:
			return late
		case <-ctx.Done():
			return late
		}
	}
}

// behind reports whether a request asks for a revision that the replica has not reached.
func (k *kept) behind(r *http.Request) bool {
	revision, err := edge.ParseRevision(r.URL.Query().Get("resourceVersion"))
	return err == nil && revision > k.replica.Position()
}

// plain is a request without the selectors that its selection stands for.
func plain(r *http.Request) *http.Request {
	query := r.URL.Query()
	query.Del("fieldSelector")
	query.Del("labelSelector")
	u := *r.URL
	u.RawQuery = query.Encode()
	stripped := r.WithContext(r.Context())
	stripped.URL = &u
	return stripped
}
