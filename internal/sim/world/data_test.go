package world

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"yurtcoordinator/internal/sim/model"
)

// of returns a ConfigMap as of a revision.
func of(name string, revision int64, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: readNamespace, Name: name, ResourceVersion: strconv.FormatInt(revision, 10)},
		Data:       map[string]string{"n": content},
	}
}

// TestReading: what a program may read of a cloud that has made a at 2, b at 4, changed a at 6, and deleted b at 8.
func TestReading(t *testing.T) {
	for name, c := range map[string]struct {
		does func(*reading)
		want string // a part of what is said; empty means that nothing is
	}{
		"everything": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Add(of("b", 4, "x"))
			_ = r.Bookmark("5")
			_ = r.Update(of("a", 6, "y"))
			_ = r.Delete(of("b", 8, "x"))
			_ = r.Bookmark("9")
			_ = r.Replace([]any{of("a", 6, "y")}, "9")
		}, ""},
		"a list that lacks one": {func(r *reading) { _ = r.Replace([]any{of("a", 2, "x")}, "4") }, "lacks data/b"},
		"a list with one too many": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x"), of("b", 4, "x")}, "3")
		}, "was not there"},
		"a list with an old object": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x"), of("b", 4, "x")}, "7")
		}, "as of 2"},
		"an older list": {func(r *reading) {
			_ = r.Replace([]any{of("a", 6, "y")}, "9")
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
		}, "after the hub has shown 9"},
		"an event is missed": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Update(of("a", 6, "y"))
		}, "data/b at revision 4 was missed"},
		"a bookmark comes early": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Bookmark("4")
		}, "data/b at revision 4 was missed, before a bookmark"},
		"a bookmark goes back": {func(r *reading) {
			_ = r.Replace([]any{of("a", 6, "y")}, "9")
			_ = r.Bookmark("8")
		}, "a bookmark at 8, after 9"},
		"an event comes twice": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Add(of("b", 4, "x"))
			_ = r.Add(of("b", 4, "x"))
		}, "an event of revision 4, after 4"},
		"a deletion is told as a change": {func(r *reading) {
			_ = r.Replace([]any{of("a", 6, "y"), of("b", 4, "x")}, "7")
			_ = r.Update(of("b", 8, "x"))
		}, "what the cloud did not"},
		"another content": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Add(of("b", 4, "z"))
		}, "what the cloud did not"},
		"a revision at which nothing changed": {func(r *reading) {
			_ = r.Replace([]any{of("a", 2, "x")}, "3")
			_ = r.Add(of("b", 5, "x"))
		}, "the cloud changed nothing"},
		"one that never was":     {func(r *reading) { r.got("data/a", of("a", 6, "z"), r.asks()) }, "was never so"},
		"one as it is":           {func(r *reading) { r.got("data/a", of("a", 6, "y"), r.asks()) }, ""},
		"one as it was, cut off": {func(r *reading) { r.got("data/a", of("a", 2, "x"), r.asks()) }, ""},
		"one as it was, with a line": {func(r *reading) {
			r.lined()
			r.got("data/a", of("a", 2, "x"), r.asks())
		}, "before the question"},
		"one older than what was shown": {func(r *reading) {
			_ = r.Replace([]any{of("a", 6, "y")}, "9")
			r.got("data/a", of("a", 2, "x"), r.asks())
		}, "shown 9"},
		"none, where one was deleted": {func(r *reading) { r.lined(); r.got("data/b", nil, r.asks()) }, ""},
		"none, where there is one": {func(r *reading) {
			r.lined()
			r.got("data/a", nil, r.asks())
		}, "before the question"},
		"none, where one has been shown": {func(r *reading) {
			_ = r.Replace([]any{of("a", 6, "y")}, "9")
			r.got("data/a", nil, r.asks())
		}, "shown 9"},
		"none, where none ever was": {func(r *reading) { r.lined(); r.got("data/c", nil, r.asks()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			truth := newTruth()
			r := &reading{truth: truth, node: "n1", resource: corev1.Resource("configmaps")}
			ago := time.Now().Add(-time.Minute)
			for _, change := range []model.Change{
				{Revision: 2, Path: "data/a", Object: of("a", 2, "x")}, {Revision: 4, Path: "data/b", Object: of("b", 4, "x")},
				{Revision: 6, Path: "data/a", Object: of("a", 6, "y")},
				{Revision: 8, Path: "data/b", Object: of("b", 8, "x"), Deleted: true},
			} {
				truth.changes[r.resource] = append(truth.changes[r.resource], dated{change, ago})
			}
			c.does(r)
			var said []string
			for _, f := range truth.take() {
				said = append(said, f.what)
			}
			if got := strings.Join(said, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}

// lined takes in that the hub has been able to ask the cloud for a while.
func (r *reading) lined() { r.current = time.Now().Add(-time.Hour) }

// TestLate: a change that the program has not read is late from a moment on.
func TestLate(t *testing.T) {
	truth := newTruth()
	r := &reading{truth: truth, node: "n1", resource: corev1.Resource("configmaps"), at: 2}
	made := time.Now()
	var o runtime.Object = of("a", 4, "x")
	truth.changes[r.resource] = []dated{{model.Change{Revision: 4, Path: "data/a", Object: o}, made}}
	if r.late(made) != nil || r.late(made.Add(time.Second)) == nil {
		t.Error("it is late before, or not after")
	}
	r.at = 4
	if r.late(made.Add(time.Second)) != nil {
		t.Error("what is read is late")
	}
}
