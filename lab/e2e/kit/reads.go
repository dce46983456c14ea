package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client returns a client with this access.
func (t *T) Client(access *rest.Config) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(access)
	t.Must(err)
	return client
}

// From returns a transport that makes a connection from a machine for each request.
func (t *T) From(machine string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.Lab.Dial(ctx, machine, address)
		},
	}
}

// Ask sends a GET as kubectl would.
func (t *T) Ask(ctx context.Context, access *rest.Config, path, accept string) (*http.Response, error) {
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(access.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, response.Status, body), response.Body.Close())
	}
	return response, nil
}

// List gets a list, as JSON.
func (t *T) List(access *rest.Config, path, accept string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(t.Ctx, 10*time.Second)
	defer cancel()
	response, err := t.Ask(ctx, access, path, accept)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var list map[string]any
	return list, json.Unmarshal(body, &list)
}

// Fetch gets a URL, and returns the body of an answer of status 200.
func Fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.1000s", url, resp.Status, body)
	}
	return string(body), err
}

// Differs returns the first difference of two JSON values.
func Differs(want, has any) error { return differsAt("", want, has) }

func differsAt(at string, want, has any) error {
	switch w := want.(type) {
	case map[string]any:
		h, ok := has.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v, want %v", at, has, want)
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if err := differsAt(at+"."+key, w[key], h[key]); err != nil {
				return err
			}
		}
		if len(h) > len(w) {
			return fmt.Errorf("%s has %v, want only %v", at, slices.Sorted(maps.Keys(h)), slices.Sorted(maps.Keys(w)))
		}
	case []any:
		h, ok := has.([]any)
		if !ok || len(h) != len(w) {
			return fmt.Errorf("%s: %.200v, want %d elements", at, has, len(w))
		}
		for i := range w {
			if err := differsAt(fmt.Sprintf("%s[%d]", at, i), w[i], h[i]); err != nil {
				return err
			}
		}
	default:
		if !reflect.DeepEqual(want, has) {
			return fmt.Errorf("%s: %v, want %v", at, has, want)
		}
	}
	return nil
}

// ByName returns the objects of a list, by namespace and name.
func ByName(text []byte) (map[string]map[string]any, error) {
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for _, o := range list.Items {
		meta, _ := o["metadata"].(map[string]any)
		delete(meta, "resourceVersion")
		all[fmt.Sprint(meta["namespace"], "/", meta["name"])] = o
	}
	return all, nil
}

// ObjectsAt returns a server's objects of a resource, by namespace and name, as kubectl gets them in JSON. It leaves out the
// resourceVersion, which each server sets itself.
func (t *T) ObjectsAt(server kubernetes.Interface, resource string) (map[string]map[string]any, error) {
	path := "/api/v1/" + resource
	if resource == EndpointSlices.Resource {
		path = EndpointSlices.Path
	}
	text, err := server.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
		DoRaw(t.Ctx)
	if err != nil {
		return nil, err
	}
	return ByName(text)
}

// SameShown fails with a difference between what a coordinator shows of a resource and what the cloud has, by name. own says
// which of the cloud's objects the coordinator must show. It may show others, as long as the cloud has them.
func SameShown(resource string, cloud, shown map[string]map[string]any, own func(o map[string]any) bool) error {
	n := 0
	for name, o := range cloud {
		if !own(o) {
			continue
		}
		n++
		if resource == "nodes" {
			known, err := knownNode(o)
			if err != nil {
				return err
			}
			o = known
		}
		there, ok := shown[name]
		if !ok {
			return fmt.Errorf("%s %s is not shown", resource, name)
		}
		if err := Differs(o, there); err != nil {
			return fmt.Errorf("%s %s is not shown as it is: %w", resource, name, err)
		}
	}
	for name, o := range shown {
		if _, ok := cloud[name]; !ok {
			return fmt.Errorf("%s %s is shown, and is gone: %v", resource, name, o["metadata"])
		}
	}
	if n == 0 {
		return fmt.Errorf("there are no %s to compare", resource)
	}
	return nil
}

// knownNode returns a Node with the fields that a coordinator's Kubernetes knows: that of a newer kubelet has more.
func knownNode(o map[string]any) (map[string]any, error) {
	all, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var node corev1.Node
	if err := json.Unmarshal(all, &node); err != nil {
		return nil, err
	}
	if all, err = json.Marshal(node); err != nil {
		return nil, err
	}
	known := map[string]any{}
	return known, json.Unmarshal(all, &known)
}
