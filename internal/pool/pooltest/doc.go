// Package pooltest is what the tests of the coordinator's packages share: certificates, a cloud's objects, an etcd that fails on
// demand, a pushing leader and a node's hub. It imports none of these packages, so that their own tests can use it.
package pooltest
