// Package page shows a person with a browser the pool's nodes, their links, Pods and Events, on one page that only reads.
//
//	gather ──Facts──▶ See ──Site──▶ render ──HTML──▶ serve ──▶ browser, which asks for /ui/live every few seconds
//
// gather.go reads from the coordinator itself. site.go interprets what was read, and is pure. render.go builds HTML from nodes,
// not from text, so a name or a message can't become markup. serve.go answers.
//
// Invariants:
//   - Before anything here runs, kube-apiserver has authenticated the caller and asked RBAC, or access.ByLink has found the
//     caller's link.
//   - While nobody looks, nothing is read and nothing kept. A site is gathered on request, at most every few seconds for all
//     viewers together, and dropped when no request has come for a while.
//   - Whatever the pool's size, an answer has at most maxRows Pods, and gathering takes at most a tenth of the time.
//   - No Secret and no ConfigMap is read.
//
// The alternatives, a stream of changes and html/template, are in docs/adr/0059-page-on-site.md.
package page
