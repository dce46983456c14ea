// Package hubtest has fakes of servers for tests of a hub.
//
// A LeaseServer is an API server's Lease storage in memory: revisions, uids, optimistic locking and creation by PUT, each as
// kube-apiserver does them, what a coordinator tells of its Leases, and faults on demand. It has no network and no goroutine but
// one per stream, so tests run it under testing/synctest.
//
// A Proxy is an HTTP proxy.
package hubtest
