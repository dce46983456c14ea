package cloudscale

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// auditPolicy records the controller's requests, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["` + controllerUser + `"]
- level: None
`

// auditLog is kube-apiserver's log of the controller's requests.
type auditLog struct {
	path   string
	offset int64
}

// requests counts them by verb and resource, as "patch nodes/status".
type requests map[string]int

// take returns what was logged since the last call. It leaves out the requests for the controller's leadership.
func (a *auditLog) take() (requests, error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	end := strings.LastIndexByte(string(content), '\n') + 1
	a.offset += int64(end)
	return parseAudit(string(content[:end]))
}

func parseAudit(log string) (requests, error) {
	found := make(requests)
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			ObjectRef *struct{ Resource, Subresource, Namespace, Name string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		if o := e.ObjectRef; o != nil && (o.Resource != "leases" || o.Namespace != "kube-system") {
			what := e.Verb + " " + o.Resource
			if o.Subresource != "" {
				what += "/" + o.Subresource
			}
			found[what]++
		}
	}
	return found, lines.Err()
}

func (r requests) add(more requests) {
	for what, n := range more {
		r[what] += n
	}
}

// total returns how many requests there were, and writes how many of them change something. writes leaves out Events.
func (r requests) total() int { return r.count(func(string) bool { return true }) }

func (r requests) writes() int {
	return r.count(func(what string) bool {
		verb, resource, _ := strings.Cut(what, " ")
		return resource != "events" && verb != "get" && verb != "list" && verb != "watch"
	})
}

// acute returns how many requests there were besides those of the routine checks every ten minutes.
func (r requests) acute() int {
	return r.total() - r["get secrets"] - r["get configmaps"] - r["patch roles"] - r["patch rolebindings"]
}

func (r requests) count(counts func(what string) bool) int {
	n := 0
	for what, m := range r {
		if counts(what) {
			n += m
		}
	}
	return n
}

// String lists the requests, most frequent first.
func (r requests) String() string {
	names := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		return cmp.Or(r[b]-r[a], strings.Compare(a, b))
	})
	for i, what := range names {
		names[i] = fmt.Sprintf("%d %s", r[what], what)
	}
	return strings.Join(names, ", ")
}
