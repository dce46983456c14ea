package model_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/sim/model"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// step is a request, and what must hold of the model's and of the real answer.
type step struct {
	name   string
	method string // "" means GET
	path   string
	body   string // JSON. {name} in path and body is what an earlier step has kept
	kind   string // the body's media type; "" means JSON
	accept string // "" means JSON
	as     string // who asks; "" means an administrator
	code   int    // of both answers
	// events is how many events of a watch are read.
	events int
	// keep names values of the answer for later steps: name to path, "rv": "metadata.resourceVersion".
	keep map[string]string
	// has are paths and values that both answers have.
	has map[string]string
	// differs says why the answers' bodies are not compared.
	differs string
	// until means that the real server is asked again until it answers with the code.
	until bool
	// model does to the model what the real server does by itself meanwhile.
	model func(*model.Store)
}

// side is one of the two that are compared.
type side struct {
	name   string
	client *http.Client
	url    string
	kept   map[string]string
	newest int64   // of the revisions of objects so far
	order  []int64 // revisions of objects, as they appeared
}

// added are fields that only the real server has, by defaults and validation that the model leaves out.
var added = regexp.MustCompile(`^(items\.\d+\.|object\.)?(` + strings.Join([]string{
	`spec\.(restartPolicy|dnsPolicy|schedulerName|securityContext|enableServiceLinks|priority|preemptionPolicy|serviceAccount.*)`,
	`spec\.containers\.\d+\.(resources|terminationMessagePath|terminationMessagePolicy|imagePullPolicy)`,
	`status\.(qosClass|loadBalancer|observedGeneration|conditions\.\d+\.observedGeneration)`,
	`spec\.(clusterIP|clusterIPs|ipFamilies|ipFamilyPolicy|internalTrafficPolicy|sessionAffinity|type|finalizers)`,
	`spec\.ports\.\d+\.(protocol|targetPort)`, `ports\.\d+\.(name|protocol)`, `reportingComponent|reportingInstance|eventTime`,
	`status\.(daemonEndpoints|nodeInfo)`,
}, "|") + `)$`)

func TestTranscript(t *testing.T) {
	store := model.NewStore()
	model := &side{name: "model", kept: map[string]string{}}
	model.client, model.url = serveModel(t, store)
	cfg := cloudtest.Start(t, cloudtest.Flag("etcd-compaction-interval", "4s"))
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	genuine := &side{name: "real", client: client, url: strings.TrimSuffix(cfg.Host, "/"), kept: map[string]string{}}
	for _, ns := range []string{"kube-system", "kube-node-lease", "default"} { // the real server makes them
		s := step{method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + ns + `"}}`}
		if a := model.ask(t, s); a.code != http.StatusCreated {
			t.Fatal(a)
		}
	}
	model.order = nil
	names := map[string]bool{}
	for _, s := range steps {
		if names[s.name] {
			t.Errorf("two steps %q", s.name)
		}
		names[s.name] = true
		if s.model != nil {
			s.model(store)
		}
		var m, r answer
		var both sync.WaitGroup
		both.Go(func() { m = model.ask(t, s) })
		both.Go(func() { r = genuine.ask(t, s) })
		both.Wait()
		for s.until && r.code != s.code && t.Context().Err() == nil {
			time.Sleep(500 * time.Millisecond) // waits for another process
			r = genuine.ask(t, s)
		}
		if m.code != s.code || r.code != s.code {
			t.Errorf("%s: the model answers %d, the real server %d, and it must be %d\nmodel: %v\nreal:  %v",
				s.name, m.code, r.code, s.code, text(m.body), text(r.body))
			continue
		}
		for path, want := range s.has {
			if got, theirs := at(m.body, path), at(r.body, path); got != want || theirs != want {
				t.Errorf("%s: %s is %q in the model, %q in the real server, and must be %q", s.name, path, got, theirs, want)
			}
		}
		if s.differs != "" {
			continue
		}
		for _, d := range differences("", normal("", m.body), normal("", r.body)) {
			t.Errorf("%s: %s\nmodel: %v\nreal:  %v", s.name, d, text(m.body), text(r.body))
		}
		if got, want := ranks(model.order), ranks(genuine.order); !slices.Equal(got, want) {
			t.Fatalf("%s: the order of revisions is %v in the model, and %v in the real server", s.name, got, want)
		}
	}
	t.Logf("%d steps, %d of them with a difference on purpose", len(steps), len(slices.DeleteFunc(slices.Clone(steps),
		func(s step) bool { return s.differs == "" })))
}

// serveModel serves a store to an administrator, who may be whom he wants; others may do nothing.
func serveModel(t *testing.T, store *model.Store) (*http.Client, string) {
	server := model.NewServer(model.Config{
		Store: store, Clock: clock.RealClock{}, Random: model.NewRandom(0),
		Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
		Custom: []model.Custom{{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps.openyurt.io", Version: "v1beta2", Kind: "NodePool"},
			Resource:         "nodepools",
		}},
	})
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), admin)))
	}))
	t.Cleanup(s.Close)
	return s.Client(), s.URL
}

type answer struct {
	code int
	body any
}

func (s *side) fill(text string) string {
	for name, value := range s.kept {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

func (s *side) ask(t *testing.T, st step) answer {
	t.Helper()
	method := st.method
	if method == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+s.fill(st.path), strings.NewReader(s.fill(st.body)))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	r.Header.Set("Accept", "application/json")
	if st.accept != "" {
		r.Header.Set("Accept", st.accept)
	}
	if st.body != "" {
		r.Header.Set("Content-Type", "application/json")
		if st.kind != "" {
			r.Header.Set("Content-Type", st.kind)
		}
	}
	if st.as != "" {
		r.Header.Set("Impersonate-User", st.as)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Errorf("%s: %s: %v", st.name, s.name, err)
		return answer{}
	}
	defer response.Body.Close()
	a := answer{code: response.StatusCode}
	if st.events > 0 && a.code == http.StatusOK {
		read, events := bufio.NewReader(response.Body), []any{}
		for len(events) < st.events {
			line, err := read.ReadBytes('\n')
			if err != nil {
				t.Errorf("%s: %s: %d of %d events, then %v", st.name, s.name, len(events), st.events, err)
				break
			}
			var e any
			if err := json.Unmarshal(line, &e); err != nil {
				t.Error(err)
			}
			events = append(events, e)
		}
		a.body = map[string]any{"events": events}
	} else {
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		if json.Unmarshal(data, &a.body) != nil {
			a.body = string(data)
		}
	}
	for name, path := range st.keep {
		s.kept[name] = at(a.body, path)
	}
	if strings.HasSuffix(at(a.body, "kind"), "List") && !strings.Contains(st.path, "resourceVersion") &&
		!strings.Contains(st.path, "continue") {
		if revision, err := strconv.ParseInt(at(a.body, "metadata.resourceVersion"), 10, 64); err != nil || revision < s.newest {
			t.Errorf("%s: %s lists revision %d, and has shown %d: %v", st.name, s.name, revision, s.newest, err)
		}
	}
	s.see(t, st.name, a.body)
	return a
}

// see notes the revisions of objects.
func (s *side) see(t *testing.T, name string, body any) {
	switch b := body.(type) {
	case map[string]any:
		if m, ok := b["metadata"].(map[string]any); ok && m["resourceVersion"] != nil {
			revision, err := strconv.ParseInt(m["resourceVersion"].(string), 10, 64)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if m["uid"] != nil {
				s.order = append(s.order, revision)
				s.newest = max(s.newest, revision)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(b)) {
			s.see(t, name, b[key])
		}
	case []any:
		for _, e := range b {
			s.see(t, name, e)
		}
	}
}

// ranks returns the place of each revision among all of them.
func ranks(revisions []int64) []int {
	sorted := slices.Compact(slices.Sorted(slices.Values(revisions)))
	places := make([]int, len(revisions))
	for i, r := range revisions {
		places[i], _ = slices.BinarySearch(sorted, r)
	}
	return places
}

// at returns the value at a path, with numbers for places in lists, as text.
func at(body any, path string) string {
	for _, key := range strings.Split(path, ".") {
		switch b := body.(type) {
		case map[string]any:
			body = b[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n >= len(b) {
				return ""
			}
			body = b[n]
		default:
			return ""
		}
	}
	if body == nil {
		return ""
	}
	return fmt.Sprint(body)
}

var (
	uids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	numbers = regexp.MustCompile(`\d+`)
)

// normal leaves out what may differ: UIDs, times, managed fields, revisions (which are compared by order), and tokens.
func normal(path string, body any) any {
	switch b := body.(type) {
	case map[string]any:
		n := map[string]any{}
		for key, value := range b {
			switch {
			case key == "managedFields", key == "resourceVersion", strings.HasSuffix(key, "Timestamp") && value != nil,
				key == "message" && path == "metadata", key == "uid":
				continue
			case key == "continue":
				n[key] = "token"
			case key == "message" && b["kind"] == "Status":
				n[key] = numbers.ReplaceAllString(uids.ReplaceAllString(value.(string), "UID"), "N")
			default:
				n[key] = normal(key, value)
			}
		}
		return n
	case []any:
		n := make([]any, len(b))
		for i, e := range b {
			n[i] = normal(path, e)
		}
		return n
	}
	return body
}

func differences(path string, model, genuine any) []string {
	m, ok := model.(map[string]any)
	r, ok2 := genuine.(map[string]any)
	if ok && ok2 {
		var all []string
		for _, key := range slices.Sorted(maps.Keys(r)) {
			at := strings.TrimPrefix(path+"."+key, ".")
			if _, ok := m[key]; ok {
				all = append(all, differences(at, m[key], r[key])...)
			} else if at = strings.TrimPrefix(at, "events."); !added.MatchString(at) && !added.MatchString(afterNumber(at)) {
				all = append(all, at+": only the real server has it: "+text(r[key]))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if _, ok := r[key]; !ok {
				all = append(all, strings.TrimPrefix(path+"."+key, ".")+": only the model has it: "+text(m[key]))
			}
		}
		return all
	}
	ml, ok := model.([]any)
	rl, ok2 := genuine.([]any)
	if ok && ok2 && len(ml) == len(rl) {
		var all []string
		for i := range ml {
			all = append(all, differences(path+"."+strconv.Itoa(i), ml[i], rl[i])...)
		}
		return all
	}
	if !reflect.DeepEqual(model, genuine) {
		return []string{path + ": the model has " + text(model) + ", the real server " + text(genuine)}
	}
	return nil
}

// afterNumber returns a path in an event as a path in its object: "0.object.spec" as "object.spec".
func afterNumber(path string) string {
	_, rest, _ := strings.Cut(path, ".")
	return rest
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data[:min(len(data), 600)])
}
