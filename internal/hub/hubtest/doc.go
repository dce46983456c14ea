// Package hubtest has fakes of servers for tests of a hub.
//
// A LeaseServer is an API server's storage of Leases, in memory. It has revisions, UIDs, optimistic locking and creation by PUT
// as kube-apiserver does them. It tells of its Leases as a coordinator does, and has faults on demand. It uses no network, and
// only one goroutine per stream, so tests run it under testing/synctest.
//
// A Proxy is an HTTP proxy.
package hubtest
