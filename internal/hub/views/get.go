package views

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// maxObject bounds the answers that Get changes: an API server accepts no larger object.
const maxObject = 3 << 20

// Get returns a writer for the answer to kubelet's get of a ConfigMap that has a Shown value. The writer holds the answer back.
// When the answer is complete, call the function end, which writes it with the value in its other form. If the answer breaks off,
// do not call end. For any other request Get returns w itself, and end does nothing.
func (c *ConfigMaps) Get(w http.ResponseWriter, r *http.Request) (shown http.ResponseWriter, end func()) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "get" || info.APIGroup != "" || info.APIVersion != "v1" || info.Resource != "configmaps" ||
		info.Subresource != "" {
		return w, func() {}
	}
	look, key := c.now.Get(), stream.Key{Namespace: info.Namespace, Name: info.Name}
	for i := range look.shown {
		if look.shown[i].of(key) {
			r.Header.Del("Accept-Encoding") // what is compressed can't be shown in another form
			g := &got{ResponseWriter: w, look: look, unviewed: &c.unviewed}
			return g, g.end
		}
	}
	return w, func() {}
}

// got buffers an answer until it is complete. It passes on at once an answer that is not an object.
type got struct {
	http.ResponseWriter
	look     *forms
	unviewed *sync.Once
	body     bytes.Buffer
	// begun says that the answer has begun; passes says that it is passed on unchanged.
	begun, passes bool
}

// WriteHeader implements http.ResponseWriter.
func (g *got) WriteHeader(status int) {
	if status < http.StatusOK {
		g.ResponseWriter.WriteHeader(status)
		return
	}
	if g.begun {
		return
	}
	g.begun, g.passes = true, status != http.StatusOK || g.Header().Get("Content-Encoding") != ""
	if g.passes {
		g.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (g *got) Write(p []byte) (int, error) {
	g.WriteHeader(http.StatusOK)
	if !g.passes && g.body.Len()+len(p) > maxObject {
		g.passes = true
		g.ResponseWriter.WriteHeader(http.StatusOK)
		if _, err := g.ResponseWriter.Write(g.body.Bytes()); err != nil {
			return 0, err
		}
	}
	if g.passes {
		return g.ResponseWriter.Write(p)
	}
	return g.body.Write(p)
}

func (g *got) end() {
	if !g.begun || g.passes {
		return
	}
	body := g.shown()
	g.Header().Set("Content-Length", strconv.Itoa(len(body)))
	g.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = g.ResponseWriter.Write(body) // fails only if the client is gone
}

// shown returns the answer as kubelet sees it. An answer in JSON, or one that it can't read, stays unchanged.
func (g *got) shown() []byte {
	t, raw, err := stream.OpenEnvelope(g.body.Bytes())
	if err != nil {
		return g.body.Bytes()
	}
	if t.Encoding == stream.JSON {
		g.unviewed.Do(func() {
			klog.Background().Info("ConfigMaps are asked for in JSON, which views do not read; the cloud's are shown")
		})
		return g.body.Bytes()
	}
	o, err := stream.Scan(t.Encoding, raw)
	if err != nil {
		return g.body.Bytes()
	}
	o.Raw = raw
	shown, _, err := replica.ShownBy(g.look, t, o)
	if err != nil || bytes.Equal(shown.Raw, raw) {
		return g.body.Bytes()
	}
	return stream.Envelope(t, shown.Raw)
}
