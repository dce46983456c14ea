// Package hubtest has what stands in for servers in tests of a hub.
//
// A LeaseServer is an API server's Lease storage in memory, for tests: revisions, uids, optimistic locking,
// creation by PUT, selectors, watches that resume, bookmarks and compaction, each as kube-apiserver does them, and
// faults at will. It has no network and no goroutine but one per watch, so tests run it under testing/synctest.
//
// A Proxy is one for HTTP.
package hubtest
