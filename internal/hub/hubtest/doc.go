// Package hubtest has fakes of servers for tests of a hub.
//
// A LeaseServer is an API server's Lease storage in memory: revisions, uids, optimistic locking, creation by PUT, selectors,
// watches that resume, bookmarks and compaction, each as kube-apiserver does them, and faults on demand. It has no network and
// no goroutine but one per watch, so tests run it under testing/synctest.
//
// A Proxy is an HTTP proxy.
package hubtest
