// Package page is what a coordinator shows to a person with a browser: the pool's nodes, their links, Pods and Events, on
// one page that only reads.
//
//	gather ──Facts──▶ See ──Site──▶ render ──HTML──▶ serve ──▶ browser, which asks for /ui/live every few seconds
//
// gather.go reads from the coordinator itself. site.go, which is pure, says what that means. render.go makes HTML of it, out of
// nodes and not out of text, so no name and no message can be anything but text. serve.go answers.
//
// Invariants:
//   - kube-apiserver has authenticated the caller and asked RBAC before anything here runs.
//   - While nobody looks, nothing is read and nothing kept: a site is gathered when somebody asks, at most every few seconds for
//     all who look together, and dropped when nobody has asked for a while.
//   - Whatever the pool's size, an answer has at most maxRows Pods, and gathering takes at most a tenth of the time.
//   - No Secret and no ConfigMap is read.
//
// The alternatives, a stream of changes and html/template, are in docs/adr/0059-page-on-site.md.
package page
